# SPDX-License-Identifier: MIT
# gcc compiles and links a C file: cc1, as, collect2 and ld by vfork and exec, joined by pipes.
if [ "$1" = setup ]; then
	cat >hello.c <<'END'
#include <stdio.h>

int main(int argc, char **argv)
{
	printf("hello %d %s\n", argc, argv[1]);
	return 0;
}
END
	echo 'int broken = ;' >broken.c
	exit 0
fi
gcc -O2 -pipe -Wall -o hello hello.c
echo "status $?"
gcc -O1 -g -c hello.c -o hello.o
echo "status $?"
gcc -c broken.c 2>/dev/null
echo "status $?"
./hello there
exit 4
