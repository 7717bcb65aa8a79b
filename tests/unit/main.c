/* SPDX-License-Identifier: Apache-2.0 */
/* The main() of test programs that have nothing else to do than to run their tests. */
#include "unit.h"

int main(void)
{
	return unit_run(NULL, NULL);
}
