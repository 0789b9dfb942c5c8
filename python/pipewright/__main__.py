"""The program that the wheel holds: `pipewright` and `python -m pipewright`."""
import os
import sys


def main() -> None:
    """Becomes the program, with the arguments of this process."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "pipewright")
    if not os.path.exists(program):
        sys.exit(f"error: no program '{program}'\n  help: it is in installed packages only; a build has it in its folder bin")
    os.execv(program, ["pipewright", *sys.argv[1:]])


if __name__ == "__main__":
    main()
