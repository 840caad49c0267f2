#!/bin/sh
# Runs the tests that depend on torch with other versions of it; docs/compatibility.md has results.
#
#   tools/torch_versions.sh FOLDER VERSION…       e.g. tools/torch_versions.sh /tmp/torches 2.10.0
#
# Makes one environment per version in FOLDER, outside of the repository, and keeps it there. What
# `pip install torch` brings are CUDA builds: they run on a CPU too, but only with their CUDA
# packages beside them, about 5 GB per version. The native library is the one that `make setup`
# built: it knows no torch. PARTS names other files or folders of tests/ than the usual ones.
set -eu

folder=${1:?"usage: $0 FOLDER VERSION…"}
shift
repository=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
export PYTHONPATH="$repository/src" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
parts=${PARTS:-test_torch_private.py autograd faults methods codecs test_opinfo.py}
cd "$repository"
# what an editable install has beside its sources
library=$(ls .venv/lib/python3*/site-packages/actzip/kernels/libactzip.* 2>/dev/null | head -n 1)
if [ -n "$library" ] && [ ! -e "src/actzip/kernels/$(basename "$library")" ]; then
    cp "$library" src/actzip/kernels/
    trap 'rm -f "src/actzip/kernels/$(basename "$library")"' EXIT
fi

for version in "$@"; do
    python="$folder/$version/bin/python"
    if ! "$python" -c 'import torch, expecttest' 2>/dev/null; then
        "${PYTHON:-python3}" -m venv "$folder/$version"
        "$python" -m pip install --quiet "torch==$version" \
            numpy rich typer pytest hypothesis expecttest scikit-learn pillow
    fi
    if ! "$python" -c 'from actzip.torch_private import require; require()' 2>"$folder/why"; then
        echo "torch $version: refused: $(tail -n 1 "$folder/why")"
        continue
    fi
    for part in $parts; do
        out="$folder/$version-$(basename "$part").txt"
        "$python" -m pytest -q -p no:cacheprovider "tests/$part" >"$out" 2>&1 || true
        echo "torch $version: tests/$part: $(tail -n 1 "$out")"
    done
done
