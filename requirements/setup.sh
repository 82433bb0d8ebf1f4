# Sourced by demo.sh and test.sh: makes .venv in the checkout once, and keeps it in step
# with the requirement files. Sets $python.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

find_python() {
    local name
    for name in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python; do
        if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
            2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    echo "No Python from 3.11 to 3.13 was found; install one, or name it: PYTHON=... $0" >&2
    return 1
}

# install FILE: what a requirement file names, unless that very content was installed.
install() {
    local found stamp="$root/.venv/installed-$(basename "$1")"
    if ! [ -x "$root/.venv/bin/python" ]; then
        found=$(find_python)
        echo "Making a virtual environment in $root/.venv"
        "$found" -m venv "$root/.venv" || {
            rm -rf "$root/.venv"
            echo "$found cannot make one (on Debian: apt-get install python3-venv)" >&2
            return 1
        }
    fi
    python="$root/.venv/bin/python"
    if ! cat "$root"/requirements.txt "$root"/requirements/*.txt | cmp -s - "$stamp"; then
        echo "Installing $1 (a minute or two)"
        "$python" -m pip install --quiet --disable-pip-version-check -r "$root/$1"
        cat "$root"/requirements.txt "$root"/requirements/*.txt > "$stamp"
    fi
}
