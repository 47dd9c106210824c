# SPDX-License-Identifier: MIT
# make -j2: a jobserver over a pipe, shells and compilers, and a target that fails.
if [ "$1" = setup ]; then
	for i in 1 2 3 4 5; do echo "int f$i(void) { return $i; }" >"f$i.c"; done
	cat >main.c <<'END'
#include <stdio.h>
int f1(void), f2(void), f3(void), f4(void), f5(void);
int main(void)
{
	printf("sum %d\n", f1() + f2() + f3() + f4() + f5());
	return 0;
}
END
	cat >Makefile <<'END'
objects = main.o f1.o f2.o f3.o f4.o f5.o
prog: $(objects)
	@$(CC) -o $@ $(objects)
%.o: %.c
	@$(CC) -O1 -c -o $@ $<
below: prog
	@$(MAKE) -s -C . check
check:
	@./prog | tr a-z A-Z
fails:
	@exit 3
END
	exit 0
fi
make -s -j2 prog
echo "status $?"
make -s -j2 below
make -s -j2 fails 2>/dev/null
echo "status $?"
