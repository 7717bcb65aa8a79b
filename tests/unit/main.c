/* SPDX-License-Identifier: Apache-2.0 */
/* main() of test programs without their own. */
#include "unit.h"

int main(void)
{
	return unit_run(NULL, NULL);
}
