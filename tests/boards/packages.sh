# shellcheck shell=sh disable=SC2154,SC2016
# Fetches Debian packages of other architectures. The script that sources this file sets "to"
# (a folder, as an absolute path) and "suite".

# begin_packages NAME ARCHITECTURE ARCHITECTURES: sets up an apt with folders of its own in
# $to/NAME.apt, so that this machine's packages get no foreign architectures.
# end_packages NAME: unpacks the fetched packages into $to/NAME.
begin_packages() {
    apt=$to/$1.apt
    rm -rf "$apt" "${to:?}/$1"
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/log" "$apt/empty" "$to/$1"
    : > "$apt/status"
    # The mirror that this machine uses for Debian.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' |
        grep -v -e security -e updates | head -n 1)
    [ -n "$mirror" ] || { echo "apt names no mirror: run apt-get update" >&2; exit 1; }
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > "$apt/sources.list"
    # APT_CONFIG is read before this machine's configuration, which must not apply here.
    cat > "$apt/apt.conf" << CONF
Dir::Etc::main "$apt/empty/none";
Dir::Etc::parts "$apt/empty";
Dir::Etc::sourceparts "$apt/empty";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt";
Dir::Log "$apt/log";
APT::Architecture "$2";
APT::Architectures { $3 };
APT::Sandbox::User "";
APT::Install-Recommends "false";
Debug::NoLocking "1";
CONF
    APT_CONFIG=$apt/apt.conf apt-get -qq update 2> "$apt/log/update" || { cat "$apt/log/update" >&2; exit 1; }
}
end_packages() {
    for package in "$apt"/archives/*.deb; do
        dpkg -x "$package" "$to/$1"
    done
    rm -r "$apt"
    : > "$to/$1/complete"
}
