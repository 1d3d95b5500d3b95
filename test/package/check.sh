#!/usr/bin/env bash
# Packs the package as it would be published, and has it looked over: whether what package.json promises is there
# (publint), and whether types and modules agree for every way to import it (are-the-types-wrong). The resolution of
# before there were exports (node10) is left out.
set -euo pipefail
cd "$(dirname "$0")/../.."

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
tarball=$place/$(npm pack --silent --pack-destination "$place" | tail -n 1)
npx --no-install publint run --strict "$tarball"
npx --no-install attw --profile node16 "$tarball"
