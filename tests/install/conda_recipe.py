"""Renders a recipe by rattler-build's own library, for Linux, and prints it as JSON: conda_recipe.py RECIPE"""

import json
import sys

from rattler_build import Stage0Recipe, VariantConfig

# What conda-forge builds with: the recipe leaves it to the variants.
VARIANTS = {
    "c_compiler": ["gcc"],
    "c_compiler_version": ["14"],
    "c_stdlib": ["sysroot"],
    "c_stdlib_version": ["2.28"],
}

(variant,) = Stage0Recipe.from_file(sys.argv[1]).render(VariantConfig(VARIANTS))
print(json.dumps(variant.recipe.to_dict(), default=str))
