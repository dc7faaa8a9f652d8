/* A C compiler accepts every size, offset, constant and prototype of the description. */
#include "../../abi/generated/layout.c"

#include <stdio.h>

int main(void)
{
    printf("ok: the header and abi.json agree\n");
    return hws__layout_is_proven;
}
