/* SPDX-License-Identifier: MIT */
/* A module that is loaded later. */
long __attribute__((visibility("default"), noinline, noclone)) late(long x)
{
	return x + 1000;
}
