#!/bin/sh
# Runs the tests with other versions of Python; docs/compatibility.md has results.
#
#   tools/python_versions.sh FOLDER VERSION…      e.g. tools/python_versions.sh /tmp/pythons 3.10 3.13
#
# Makes one environment per version in FOLDER, outside of the repository, and keeps it there. A
# version is a number for which there is a python3.x on the path (pyenv's count), or the path of an
# interpreter. Packages are linked from one cache, so that the second environment takes little more
# room than the first: 7 GB, most of it CUDA packages that torch's usual wheels ask for. The native
# library is the one that `make setup` built: it knows no Python. PARTS names files or folders of
# tests/ other than all of them; each has its own process and LIMIT seconds.
set -eu

folder=${1:?"usage: $0 FOLDER VERSION…"}
shift
repository=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$repository"
# what an editable install has beside its sources
library=$(ls .venv/lib/python3*/site-packages/actzip/kernels/libactzip.* 2>/dev/null | head -n 1)
if [ -n "$library" ] && [ ! -e "src/actzip/kernels/$(basename "$library")" ]; then
    cp "$library" src/actzip/kernels/
    trap 'rm -f "src/actzip/kernels/$(basename "$library")"' EXIT
fi
parts=${PARTS:-$(cd tests && ls -d test_*.py */ | grep -v -e fuzz -e native -e __pycache__)}
export PYTHONPATH="$repository/src" OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

if [ ! -x "$folder/uv/bin/uv" ]; then
    "${PYTHON:-python3}" -m venv "$folder/uv"
    "$folder/uv/bin/pip" install --quiet uv
fi
export UV_CACHE_DIR="$folder/cache"
torch=$(sed -n 's/^torch==//p' constraints.txt)

for version in "$@"; do
    name=$(basename "$version")
    python="$folder/$name/bin/python"
    if [ ! -e "$folder/$name/ready" ]; then
        "$folder/uv/bin/uv" venv --quiet --no-python-downloads --python "$version" "$folder/$name"
        "$folder/uv/bin/uv" pip install --quiet --python "$python" "torch==$torch" numpy rich typer \
            scikit-learn pillow matplotlib accelerate expecttest hypothesis lightning mypy peft \
            pycocotools pytest ruff tensorboard transformers pyarrow datasets
        touch "$folder/$name/ready"
    fi
    echo "$("$python" --version), torch $("$python" -c 'import torch; print(torch.__version__)')"
    for part in $parts; do
        out="$folder/$name-$(basename "$part").txt"
        timeout "${LIMIT:-3600}" "$python" -m pytest -q -p no:cacheprovider "tests/$part" \
            >"$out" 2>&1 || true
        echo "$name: tests/$part: $(tail -n 1 "$out")"
    done
done
