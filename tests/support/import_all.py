"""Import every module of an installed murmurate: python import_all.py. Needs its extras service and lab."""

import importlib
import pkgutil
import sys

import murmurate

NOT_INSTALLED = {"pandas", "pyspark"}  # of the extra spark


def main() -> int:
    names = [module.name for module in pkgutil.walk_packages(murmurate.__path__, "murmurate.")]
    left_out = []
    for name in names:
        if name.endswith("__main__"):
            continue
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in NOT_INSTALLED:
                raise
            left_out.append(name)
    version = ".".join(map(str, sys.version_info[:3]))
    sys.stdout.write(
        f"Python {version}: {len(names)} modules imported; left out without Spark: {', '.join(left_out) or 'none'}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
