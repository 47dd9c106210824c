/* SPDX-License-Identifier: MIT */
#ifndef LIBLEAF_H
#define LIBLEAF_H

#include <stdint.h>

uint64_t lib_leaf(uint64_t x);

#endif
