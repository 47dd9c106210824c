# SPDX-License-Identifier: MIT
# git: clone of a local repository, log -p cut off by head (SIGPIPE), gc.
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' GIT_PAGER=cat
if [ "$1" = setup ]; then
	git init -q -b main origin
	cd origin || exit 1
	for i in $(seq 60); do
		seq "$i" 2000 >"file$((i % 7))"
		git add .
		git commit -q -m "change $i"
	done
	exit 0
fi
git clone -q --no-hardlinks origin copy || exit 1
cd copy || exit 1
git log -p | head -n 30
echo "status ${PIPESTATUS[*]}"
git -c pack.threads=2 gc -q
git count-objects -v | grep -v size
git fsck --no-progress
git log --oneline | wc -l
