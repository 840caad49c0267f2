"""How precise must each stored tensor be? Statistics of backward, error formulas, a solver."""
