/* SPDX-License-Identifier: MIT */
/* startup: does nothing, like true(1). */
int main(void)
{
	return 0;
}
