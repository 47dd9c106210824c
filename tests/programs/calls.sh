# SPDX-License-Identifier: MIT
# The project's own: every call that moves a message, makes or closes a descriptor, sends a signal or makes a child.
fixtures=${TEST_FIXTURES:-}
if [ "$1" = setup ]; then
	[ -x "$fixtures/messages" ] || exit 77
	exit 0
fi
for name in messages ports signals handlers exceptions waits locks; do
	"$fixtures/$name" 2>&1 | cat
	echo "$name ${PIPESTATUS[0]}"
done
"$fixtures/spawns" all
echo "spawns $?"
