#!/usr/bin/env bash
# Builds the native core with the address and undefined-behaviour sanitizers, and runs its tests on that build.
#
#   PYTHON=.venv/bin/python tests/run_sanitized.sh [pytest arguments]
#
# Needs g++ (or another compiler in CXX that comes with libasan), cmake, nanobind and pytest. The build stays in
# build/sanitized, so that the next run compiles only what changed.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
compiler=${CXX:-g++}
build=build/sanitized
package=$PWD/$build/package

fail() {
  echo "run_sanitized.sh: $1" >&2
  exit 1
}
python=$(command -v "$python") || fail "there is no ${PYTHON:-python3}"
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")  # absolute, but a link still: it names its environment
export PATH=$(dirname "$python"):$PATH                              # where the extra 'dev' puts cmake
"$python" -c 'import nanobind, pytest' || fail "$python lacks nanobind or pytest; install the package's extra 'dev'"
cmake=$(command -v cmake || true)
[ -n "$cmake" ] || fail "cmake is not on the PATH"
libasan=$("$compiler" -print-file-name=libasan.so)
libstdcxx=$("$compiler" -print-file-name=libstdc++.so)
[ -e "$libasan" ] || fail "$compiler comes without libasan.so"

mkdir -p build
"$cmake" -S native -B "$build" -DHEADSTART_SANITIZE=ON -DHEADSTART_STRICT=ON -DCMAKE_CXX_COMPILER="$compiler" \
  -DPython_EXECUTABLE="$python" >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
"$cmake" --build "$build" --target _native _lookup --parallel 2 >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }

# the package as it stands in the source, but for the module
rm -rf "$package"
mkdir -p "$package/headstart"
for entry in src/headstart/*; do
  case $entry in
    *.so | */__pycache__) ;;
    *) ln -s "$PWD/$entry" "$package/headstart/" ;;
  esac
done
cp "$build"/_native*.so "$build"/_lookup*.so "$package/headstart/"

# Python itself has no sanitizer, so the runtime must be there before it; libstdc++ beside it, or the runtime would
# not find where exceptions are thrown. What Python holds at its exit are no leaks of ours.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
export PYTHONDONTWRITEBYTECODE=1 SANITIZED_PACKAGE=$package
if [ $# -eq 0 ]; then
  set -- tests/unit/native tests/property/test_native_rows.py tests/property/test_suffix_automaton.py
fi
LD_PRELOAD="$libasan $libstdcxx" "$python" -c '
import os, sys

# an editable install would answer for headstart before the path is asked
sys.meta_path[:] = [finder for finder in sys.meta_path if "Redirecting" not in type(finder).__name__]
sys.path.insert(0, os.environ["SANITIZED_PACKAGE"])
from headstart import _native

assert _native.__file__.startswith(os.environ["SANITIZED_PACKAGE"]), _native.__file__
import pytest  # capture: what the sanitizers print is C, and must be seen if they end the process

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--capture=sys", *sys.argv[1:]]))
' "$@"
