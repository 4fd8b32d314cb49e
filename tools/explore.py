"""Tests with random inputs on fresh seeds: ``make explore``, before a release and for whatever you change.

    make explore ROUNDS=5              five fresh seeds; each prints how to replay it
    make explore CH=13                 of one chapter
    make explore ARGS="-k gspo"        of what you changed

The landing suite draws from one constant seed (tests/plan.py). Here each round draws another, and tests run in another order.
"""

import argparse
import os
import secrets
import shlex
import subprocess
import sys


def main() -> int:
    """Run the rounds; fails if one of them failed, and says which seeds to replay."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, metavar="INT", help="number of fresh seeds (default: 3)")
    args, options = parser.parse_known_args()
    failed = []
    for round_number in range(1, args.rounds + 1):
        seed = secrets.randbelow(2**31)
        command = [sys.executable, "-m", "pytest", "--random-inputs", f"--shuffle={seed}", *options]
        replay = f"MINIRLHF_TEST_SEED={seed} {shlex.join(['.venv/bin/python', *command[1:]])}"
        print(f"round {round_number} of {args.rounds}: {replay}", flush=True)
        status = subprocess.run(command, env=os.environ | {"MINIRLHF_TEST_SEED": str(seed)}).returncode
        if status == 5:  # pytest: no test was selected
            print("no test with random inputs is selected")
            return status
        if status:
            failed.append(replay)
    print(f"{args.rounds - len(failed)} passed, {len(failed)} failed" + "".join(f"\nreplay: {one}" for one in failed))
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
