#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# copy.sh HUTCH [IMAGE] [DIRECTORY]: compares the speed of hutch cp with pipes that copy the same
# data below DIRECTORY (/dev/shm).
#   1 GB in and out, against   cat FILE | cat > FILE            at least 50 % of its speed
#   100,000 files in and out, against   tar c | tar x           at most 3 times its time
# Both sides are measured in turn, so that a busy host slows both; medians of ROUNDS (5). Needs 3 GB
# there and 3 GB for the sandbox. Also prints the client's peak memory. Fails if a bar is missed.
set -eu
hutch=$(realpath "$1")
image=${2:-base}
rounds=${ROUNDS:-5}
bytes=${BYTES:-1073741824}
files=${FILES:-100000}
work=$(mktemp -d "${3:-/dev/shm}/hutch-copy-XXXXXX")
id=$("$hutch" create --image "$image" --memory 4GiB --disk 4GiB)
trap '"$hutch" rm -f "$id" > /dev/null; rm -rf "$work"' EXIT
cd "$work"

# Runs a command and appends its milliseconds to the file $1.
took() {
	local to=$1 from
	shift
	from=$(date +%s%N)
	"$@" > /dev/null
	echo $((($(date +%s%N) - from) / 1000000)) >> "$to"
}

median() {
	sort -n "$1" | sed -n "$(((rounds + 1) / 2))p"
}

peak() {
	sort -n "$1" | tail -1
}

pipe_file() {
	# shellcheck disable=SC2002 # a pipe is what is measured
	cat big | cat > copy
}

pipe_tree() {
	mkdir copy && tar c -C tree . | tar x -C copy
}

in_box() {
	"$hutch" exec "$id" -- "$@"
}

timed_cp() {
	/usr/bin/python3 - "$hutch" "$@" << 'EOF'
import os, resource, subprocess, sys
subprocess.run([sys.argv[1], "cp", *sys.argv[2:]], check=True)
with open("peak", "a") as f:
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=f)
EOF
}

head -c "$bytes" /dev/urandom > big
/usr/bin/python3 - "$files" << 'EOF'
import os, sys
for i in range(int(sys.argv[1])):
    directory = f"tree/{i // 1000:03}"
    if i % 1000 == 0:
        os.makedirs(directory)
    with open(f"{directory}/{i:06}", "wb") as f:
        f.write(b"%d" % i * (i % 50))
EOF
for _ in $(seq "$rounds"); do
	took file-pipe pipe_file
	rm copy
	took file-in timed_cp big "$id:/tmp/big"
	took file-out timed_cp "$id:/tmp/big" copy
	cmp big copy
	rm copy
	in_box rm /tmp/big
	took tree-pipe pipe_tree
	rm -r copy
	took tree-in timed_cp tree "$id:/tmp/tree"
	took tree-out timed_cp "$id:/tmp/tree" copy
	diff -r tree copy
	rm -r copy
	in_box rm -r /tmp/tree
done

bad=0
for way in in out; do
	speed=$(($(median file-pipe) * 100 / $(median file-$way)))
	time=$(($(median tree-$way) * 100 / $(median tree-pipe)))
	echo "1 file of $bytes bytes $way: $speed % of the speed of a pipe ($(median file-$way) ms, $(median file-pipe) ms)"
	echo "$files files $way: $time % of the time of tar | tar ($(median tree-$way) ms, $(median tree-pipe) ms)"
	if [ "$speed" -lt 50 ] || [ "$time" -gt 300 ]; then
		bad=1
	fi
done
echo "memory of the client: $(peak peak) KiB at most"
exit $bad
