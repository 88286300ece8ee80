#!/bin/sh
# Measures the tables of docs/measured that are of a GPU machine, in one call, with programs that
# were built elsewhere.
#
# usage: benches/gpu/lines.sh PROGRAM FOLDER [--mnist PROGRAM] [--loader FILE] [--vendor LIBRARY]
#                             [--python PYTHON] [--device DEV] [--quick]
#
# PROGRAM   mortonnet, release build
# FOLDER    the folder of the results (made if it is missing)
# --mnist   mortonnet built with MORTONNET_MODEL=model/mnist, for the start-up lines
# --loader  libOpenCL.so.1, or Debian's package ocl-icd-libopencl1 (.deb), for a machine without an
#           OpenCL loader
# --vendor  the GPU driver's OpenCL library                             [libnvidia-opencl.so.1]
# --python  an interpreter with PyTorch and ONNX Runtime                [python3]
# --device  the GPU: part of its name                                   [NVIDIA]
# --quick   seconds instead of minutes, for trying this script on any OpenCL device: not for figures
#
# Each step has a time limit of its own, at most 8 minutes in all. A step that fails or is cut off
# does not stop the others, and its output so far stays in FOLDER. log.txt has commands, seconds,
# exit codes and stderr.
#
#   networks.txt        the four networks beside PyTorch
#   documents.json      the documents' tables: products, biases, activations, Sobel, networks, peaks
#   documents.html      these tables as a page
#   squares.txt         square products beside cuBLAS
#   startup.csv         start to the first class with and without the kernel-binary cache
#   variants.csv        halves and floats, the plans generic, desktop and nvidia, in turns
#   cpu.txt             host engine and cpu-simd on all cores beside the peers
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)

fail() { echo "lines.sh: $1" >&2; exit 2; }
usage="expected PROGRAM FOLDER [options]; the head of this file has them"
[ $# -ge 2 ] || fail "$usage"
program=$1 out=$2
shift 2
mnist="" loader="" vendor=libnvidia-opencl.so.1 python=python3 device=NVIDIA quick=""
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=1; shift; continue ;;
        --mnist | --loader | --vendor | --python | --device)
            [ $# -ge 2 ] || fail "$1: expected a value"
            ;;
        *) fail "$1: $usage" ;;
    esac
    case $1 in
        --mnist) mnist=$2 ;;
        --loader) loader=$2 ;;
        --vendor) vendor=$2 ;;
        --python) python=$2 ;;
        --device) device=$2 ;;
    esac
    shift 2
done
for file in "$program" ${mnist:+"$mnist"}; do
    [ -f "$file" ] || fail "$file: expected a program, found no such file"
    # Copying may have taken the bit away.
    [ -x "$file" ] || chmod +x "$file"
done
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
absolute() { echo "$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"; }
program=$(absolute "$program")
[ -z "$mnist" ] || mnist=$(absolute "$mnist")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$out/log.txt
: > "$log"

# A loader of its own, and one vendor: whatever else is installed does not get into the way.
if [ -n "$loader" ]; then
    case $loader in
        *.deb)
            dpkg-deb -x "$loader" "$work/loader" 2>> "$log" ||
                fail "$loader: dpkg-deb could not unpack it"
            MORTONNET_OPENCL=$(find "$work/loader" -name 'libOpenCL.so.1' | head -n 1)
            [ -n "$MORTONNET_OPENCL" ] ||
                fail "$loader: expected a libOpenCL.so.1 in it, found none"
            ;;
        *) MORTONNET_OPENCL=$(absolute "$loader") ;;
    esac
    export MORTONNET_OPENCL
fi
mkdir "$work/gpu"
echo "$vendor" > "$work/gpu/gpu.icd"
export MORTONNET_CACHE=""
cores=$(nproc)
all_cores=$(seq -s , 0 $((cores - 1)))

begin=$(date +%s)
# step SECONDS FILE COMMAND...: its stdout goes to FILE, its stderr to the log.
step() {
    limit=$1 file=$2
    shift 2
    left=$((480 - ($(date +%s) - begin)))
    [ "$limit" -le "$left" ] || limit=$left
    echo "== $file: $*" >> "$log"
    if [ "$limit" -lt 5 ]; then
        echo "-- not run: the 8 minutes are over" >> "$log"
        echo "$file: not run, the 8 minutes are over"
        return 0
    fi
    start=$(date +%s)
    timeout -k 5 "$limit" "$@" >> "$out/$file" 2>> "$log"
    code=$?
    seconds=$(($(date +%s) - start))
    why=""
    [ $code -ne 124 ] || why=" (cut off after $limit s)"
    echo "-- exit $code after $seconds s$why" >> "$log"
    echo "$file: exit $code after $seconds s$why"
}
gpu() { limit=$1 file=$2; shift 2; step "$limit" "$file" env OCL_ICD_VENDORS="$work/gpu" "$@"; }

{
    date -u
    "$program" --version
    uname -srm
    nproc
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu \
        --format=csv 2>&1
    OCL_ICD_VENDORS=$work/gpu "$program" --list-devices 2>&1
    "$program" --list-devices 2>&1
} >> "$log"
rm -f "$out"/networks.txt "$out"/squares.txt "$out"/variants.csv "$out"/documents.* \
    "$out"/startup.csv "$out"/cpu.txt

# Beside PyTorch.
compare="$python $here/benches/gpu/compare.py $program --device $device"
# shellcheck disable=SC2086
gpu 75 networks.txt $compare --part networks

# The documents' kernels. Checks and networks come on top of the limit, and nothing is printed
# before the end: the steps behind it have what is left, and print as they go.
limit=100 more=""
[ -z "$quick" ] || limit=5 more="--repeat 2 --sizes 64"
# shellcheck disable=SC2086
gpu 240 documents.json "$program" bench --device "$device" --time-limit $limit $more -o json \
    --report "$out/documents.html"

# shellcheck disable=SC2086
gpu 60 squares.txt $compare --part squares

if [ -n "$mnist" ]; then
    plan="--plan nvidia" runs=5
    [ -z "$quick" ] || plan="" runs=1
    # shellcheck disable=SC2086
    gpu 60 startup.csv "$python" "$here/benches/startup.py" --program "$mnist" --runs $runs $plan \
        --device "$device"
else
    echo "startup.csv: not run, no --mnist"
fi

# Halves and floats, and the plans for other GPUs.
more=""
[ -z "$quick" ] || more="--turns 1 --networks partial-cifar --plans generic,desktop"
# shellcheck disable=SC2086
gpu 90 variants.csv "$python" "$here/benches/gpu/variants.py" "$program" --device "$device" $more

# The processor of that machine: full networks only, as many turns as fit.
turns=2 names=full-mnist,full-cifar
[ -z "$quick" ] || turns=1 names=partial-cifar
host="$python $here/benches/host.py --python $python --program $program --cores $all_cores"
host="$host --networks $names"
# shellcheck disable=SC2086
step 45 cpu.txt $host --batches 100,1 --turns $turns
cpu=$("$program" --list-devices 2> /dev/null |
    awk '/\(CPU, / && $1 ~ /^[0-9]+:?$/ { sub(":", "", $1); print $1; exit }')
if [ -n "$cpu" ]; then
    # shellcheck disable=SC2086
    step 30 cpu.txt env POCL_AFFINITY=1 $host --batches 100 --turns $turns --device "$cpu" \
        --plan cpu-simd
else
    echo "cpu.txt: no OpenCL device that is a CPU: cpu-simd left out" | tee -a "$log"
fi
echo "$(($(date +%s) - begin)) s in all; results in $out"
