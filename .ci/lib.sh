# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Functions shared by .ci/run, .ci/quick, .ci/nightly and .ci/selftest: packages, images, builds,
# steps and their counts.
#
# A step writes its counts to $OUT/counts/NAME, so that background steps count too. A step announced
# with `expect` fails if it has no counts: a step that does not run must not pass. Nothing is
# retried.

OUT=${CI_OUT:-$(mktemp -d)}
mkdir -p "$OUT/counts"
# Variables of the caller's shell must not influence the tests.
for name in "${!HUTCH_@}"; do unset "$name"; done
CACHE=${CI_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hutch-ci}
PYTHON=/usr/bin/python3
PACKAGES=(meson ninja-build gcc ccache clang clang-tidy clang-format libclang-rt-14-dev pkg-config python3 git
	libjansson-dev libyaml-dev libsodium-dev libpsl-dev libc-ares-dev libssl-dev libnghttp2-dev libhyperscan-dev libcmocka-dev zlib1g-dev
	gcovr cppcheck mandoc shellcheck gzip mount mmdebstrap uidmap umoci skopeo zstd xz-utils tar passwd crun runc iproute2 tmux strace util-linux systemd
	curl openssh-server openssl postgresql python3-h2 python3-grpcio musl-tools nftables qemu-system-x86 erofs-utils e2fsprogs lz4)

say() { printf '\n== %s\n' "$*"; }

# expect NAME...: announces steps that must have counts at the end.
expect() { printf '%s\n' "$@" >>"$OUT/expected"; }

# count NAME PASSED FAILED SKIPPED
count() { printf '%d %d %d\n' "$2" "$3" "$4" >"$OUT/counts/$1"; }

# step NAME COMMAND...: runs the command, keeps its output and counts it as one check.
step()
{
	local name=$1 start=$SECONDS
	shift
	if "$@" >"$OUT/$name.log" 2>&1; then
		count "$name" 1 0 0
		printf 'ok      %-24s %4d s\n' "$name" $((SECONDS - start))
	else
		count "$name" 0 1 0
		printf 'FAILED  %-24s %4d s, the end of its output:\n%s\n' "$name" $((SECONDS - start)) \
			"$(grep -vE '^\[[0-9]+/[0-9]+\] ' "$OUT/$name.log" | tail -n 60 | sed 's/^/    /')"
	fi
}

# why LOG: prints the last lines of each failed test.
why()
{
	awk 'function tell() { for (i = n > 12 ? n - 12 : 0; i < n; i++) print line[i]; n = 0 }
		/^not ok/ { tell(); print; told = 1; next }
		told && /^#/ { line[n++] = $0; next }
		{ tell(); told = 0 }' "$1" | cut -c1-400 | tail -n 120
}

# tests NAME DIR [MESON ARGUMENT...]: runs tests of a build and counts every case.
tests()
{
	local name=$1 dir=$2 start=$SECONDS status counts p f s failures=
	shift 2
	rm -f "$dir/meson-logs/$name.junit.xml"
	meson test -C "$dir" --no-rebuild --print-errorlogs --timeout-multiplier 4 --logbase "$name" "$@" >"$OUT/$name.log" 2>&1
	status=$?
	counts=$("$PYTHON" .ci/count.py "$dir/meson-logs/$name.junit.xml") || counts="0 1 0"
	read -r p f s <<<"$counts"
	# Only meson's exit status shows a program that failed or timed out although its cases
	# passed.
	[ $status = 0 ] || [ "$f" != 0 ] || f=1
	count "$name" "$p" "$f" "$s"
	[ "$f" = 0 ] || failures=$'\n'$(grep -hE '(FAIL|ERROR|TIMEOUT)\b' "$OUT/$name.log" | tail -n 40; why "$dir/meson-logs/$name.txt")
	printf '%-7s %-24s %4d s, %s passed, %s failed, %s skipped%s\n' \
		"$([ "$f" = 0 ] && echo ok || echo FAILED)" "$name" $((SECONDS - start)) "$p" "$f" "$s" "$failures"
}

# total: prints the last line; succeeds if nothing failed.
total()
{
	local passed=0 failed=0 skipped=0 p f s name
	while read -r name; do
		[ -e "$OUT/counts/$name" ] || { echo "FAILED  $name did not run"; failed=$((failed + 1)); }
	done < <(sort -u "$OUT/expected")
	for name in "$OUT"/counts/*; do
		read -r p f s <"$name"
		passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	done
	# A CI host has everything that tests need: a skip would hide a missing part.
	if [ $skipped -gt 0 ]; then
		echo "FAILED  tests were skipped that must run here"
		grep -h '# SKIP' "$OUT"/*.log | sort | uniq -c | head -n 20
		failed=$((failed + 1))
	fi
	printf '\nlogs in %s, %d s\n' "$OUT" $SECONDS
	printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
	[ $failed = 0 ]
}

install_packages()
{
	local missing=() p
	for p in "${PACKAGES[@]}" "$@"; do
		dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
	done
	[ ${#missing[@]} = 0 ] && return 0
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

sources() { git ls-files -- "$@"; }

# All clones of this tree share ccache entries: tests do not use the paths in debugging information.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

# build DIR COMPILER [MESON OPTION...]: builds $TARGETS, or everything if it is unset.
build()
{
	local dir=$1 compiler=$2
	shift 2
	# shellcheck disable=SC2086
	CC="${CACHER-ccache }$compiler" meson setup "$dir" --werror "$@" && ninja -C "$dir" ${TARGETS:-}
}

# ---- downloads, kept outside the tree under the digest of their recipe and checked before use ----

# cached NAME RECIPE COMMAND...: prints the path of a directory that `COMMAND... DIRECTORY` filled.
# The digest of the file RECIPE is part of the path.
cached()
{
	local dir lock
	dir=$CACHE/$1-$(sha256sum <"$2" | cut -c1-16)
	shift 2
	mkdir -p "$CACHE"
	exec {lock}>"$dir.lock"
	flock $lock
	if ! { [ -d "$dir" ] && (cd "$dir" && sha256sum --quiet --strict -c SHA256SUMS) >&2; }; then
		rm -rf "$dir" "$dir.part"
		mkdir "$dir.part"
		"$@" "$dir.part" >&2 || return 1
		(cd "$dir.part" && find . -type f ! -name SHA256SUMS -print0 | sort -z | xargs -0 sha256sum >SHA256SUMS) || return 1
		mv "$dir.part" "$dir"
	fi
	exec {lock}>&-
	echo "$dir"
}

# In its own mount namespace: copies of its mounts elsewhere would keep mmdebstrap from unmounting.
make_image() { if [ "$(id -u)" = 0 ]; then unshare --mount bash "$1" "$2/image.tar"; else bash "$1" "$2/image.tar"; fi; }

# The package behind `hutch image kernel`. Its name contains the version, so a new version is a new
# recipe.
kernel_package()
{
	local meta
	for meta in linux-image-6.12-cloud-amd64 linux-image-cloud-amd64; do
		apt-cache show --no-all-versions $meta 2>/dev/null | sed -n 's/^Depends: \([^ ]*\).*/\1/p' | grep . && return
	done
}
fetch_kernel() { cd "$1" && apt-get -q download "$(kernel_package)"; }

# Writes the paths of all images to $OUT/images, for use_images.
make_images()
{
	local name dir
	: >"$OUT/images.part"
	for name in integration:TEST conformance:E2B egress:EGRESS; do
		dir=$(cached "image-${name%:*}" "tests/${name%:*}/make-image.sh" make_image "tests/${name%:*}/make-image.sh") || return 1
		echo "export HUTCH_${name#*:}_IMAGE=$dir/image.tar" >>"$OUT/images.part"
	done
	kernel_package >"$OUT/kernel-package" && [ -s "$OUT/kernel-package" ] || return 1
	dir=$(cached kernel "$OUT/kernel-package" fetch_kernel) || return 1
	echo "export HUTCH_TEST_KERNEL_DIR=$dir" >>"$OUT/images.part"
	mv "$OUT/images.part" "$OUT/images"
}

# shellcheck source=/dev/null
use_images() { [ -e "$OUT/images" ] && . "$OUT/images"; }

# ---- checks ----

format() { sources 'src/*.[ch]' 'tests/*.[ch]' | xargs clang-format --dry-run -Werror; }

shell() { sources '.ci/*' 'tests/*.sh' | grep -v '\.py$' | xargs shellcheck -S warning; }

tidy() { sources 'src/*.c' | xargs "$PYTHON" .ci/tidy.py "$1" "$CACHE/tidy"; }

# memleak is off: cppcheck does not know __attribute__((cleanup)); LeakSanitizer finds leaks.
analyse()
{
	cppcheck --project="$1/compile_commands.json" -D__x86_64__ --enable=warning,performance,portability \
		--file-filter="$PWD/src/*" --inline-suppr --suppress=memleak --suppress=missingIncludeSystem -j2 --quiet \
		--error-exitcode=1
}

# At most 1000 lines per file, no strcpy and similar functions, no large file, no sleep in tests
# outside waiting.py.
house_rules()
{
	local bad=0 lines file
	while read -r lines file; do
		[ "$file" = total ] && continue
		[ "$lines" -le 1000 ] || { echo "$file has $lines lines"; bad=1; }
	done < <(sources '*.c' '*.h' '*.py' | xargs wc -l)
	sources 'src/*.[ch]' |
		xargs grep -nE '\b(strcpy|strcat|sprintf|strtok|strtok_r|alloca|atoi|atol|gets|system|popen)\(' && bad=1
	sources 'tests/*.py' | grep -vE '^tests/(integration/waiting.py$|bench/)' | xargs grep -nE '\btime\.sleep\(|from time import .*sleep' && bad=1
	sources '*.c' '*.h' '*.py' '*.yaml' '*/meson.build' | grep -v '^tests/\(wrong\|fuzz/corpus\)/' |
		xargs grep -L 'SPDX-License-Identifier: Apache-2.0' | sed 's/$/: no SPDX line/' | { ! grep .; } || bad=1
	/usr/bin/python3 tools/rooms.py check || bad=1
	/usr/bin/python3 tools/prose.py || bad=1
	# Only the engine table and the VM parts (vm, ram) name engines; other code tests traits
	# (docs/ENGINES.md).
	sources 'src/*.[ch]' 'src/*/meson.build' | grep -vE '^src/(engine|ram|vm)/' | xargs grep -niE '\b(crun|runc|runsc|qemu|qmp|firecracker)' && bad=1
	sources 'src/*.[ch]' | grep -vE '^src/(engine|vm)/|^src/receipt/level\.' |
		xargs grep -nE '\bLEVEL_(CONTAINER|GVISOR|MICROVM)\b|"(container|gvisor|microvm)"' && bad=1
	# A private key made by a test was once committed.
	sources | grep -v '^tests/' | xargs grep -lE '^-----BEGIN .*PRIVATE KEY' && bad=1
	# Do not commit what a script can make again: a committed image once blocked a whole branch.
	sources | tr '\n' '\0' | xargs -0 stat -c '%s %n' | awk '$1 > 1048576 { print $2 " is too large"; n++ } END { exit n > 0 }' || bad=1
	return $bad
}

# Tests must reach at least 90 % of the lines of base, wire, names and policy.
coverage()
{
	local dir=$1 module
	meson test -C "$dir" --no-rebuild --suite unit --suite corpus >/dev/null 2>&1
	for module in base wire names policy; do
		gcovr --root . --filter "src/$module/" --object-directory "$dir" --fail-under-line 90 "$dir" || return 1
	done
}

# ---- fuzzers ----

FUZZERS="yaml json names l7 llm filter keys secret token audit record dns front hello http tap-exchange upstream answer tar message wire-keeper wire-guest keeper client server mcp multipart rpc port keystore tap-h2"

# fuzz NAME DIR SECONDS: runs libFuzzer on a copy of the corpus. Fails if it sees fewer than 100
# branches: then the code under test was not instrumented.
fuzz()
{
	local corpus=$OUT/corpus-$1 seeds=(tests/fuzz/corpus/"$1") log=$OUT/fuzzing-$1.log cov
	[ "$1" = yaml ] && seeds+=(agents presets/egress tests/wrong)
	mkdir -p "$corpus"
	"$2/tests/fuzz/fuzz-$1" -max_total_time="$3" -max_len=8192 -timeout=60 -rss_limit_mb=2048 \
		-print_final_stats=1 -artifact_prefix="$OUT/" "$corpus" "${seeds[@]}" >"$log" 2>&1 || { tail -n 60 "$log"; return 1; }
	cov=$(sed -n 's/.*DONE *cov: \([0-9]*\).*/\1/p' "$log")
	echo "coverage: ${cov:-0} branches"
	[ "${cov:-0}" -ge 100 ]
}

# fuzz_all DIR SECONDS: runs four fuzzers at a time; with more, none gets far on two cores.
fuzz_all()
{
	local target running=0
	for target in $FUZZERS; do
		step "fuzz-$target" fuzz "$target" "$1" "$2" &
		running=$((running + 1))
		[ $((running % 4)) = 0 ] && wait
	done
	wait
}

# Runs the README's quick start, as written there, in a clean clone.
quick_start()
{
	local dir r
	dir=$(mktemp -d) && "$PYTHON" .ci/quick-start.py README.md "$PWD" "$dir"
	r=$?
	rm -rf "$dir"
	return $r
}
