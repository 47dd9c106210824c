/* SPDX-License-Identifier: MIT */
/* checksum.c: CRC-32C (Castagnoli), with the processor's instruction where it has one. */
#include "collector/event/checksum.h"

#include <stddef.h>
#include <string.h>

enum { POLYNOMIAL_REFLECTED = 0x82f63b78 };

static uint32_t crc32c_portable(uint32_t crc, const uint8_t *at, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		crc ^= at[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ ((crc & 1) ? (uint32_t)POLYNOMIAL_REFLECTED : 0);
	}
	return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_instruction(uint32_t crc, const uint8_t *at, size_t length)
{
	uint64_t state = crc;
	for (; length >= 8; at += 8, length -= 8) {
		uint64_t word;
		memcpy(&word, at, sizeof word);
		state = __builtin_ia32_crc32di(state, word);
	}
	crc = (uint32_t)state;
	for (; length > 0; at++, length--)
		crc = __builtin_ia32_crc32qi(crc, *at);
	return crc;
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t length)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return ~crc32c_instruction(~crc, data, length);
#endif
	return ~crc32c_portable(~crc, data, length);
}

uint64_t packet_checksum(const void *packet, size_t length)
{
	static const uint64_t nothing = 0;
	const uint8_t *at = packet;
	const size_t before = offsetof(struct lorg_packet, last), after = before + sizeof nothing;
	uint32_t crc = crc32c(0, at, length < before ? length : before);
	crc = crc32c(crc, &nothing, sizeof nothing);
	if (length > after)
		crc = crc32c(crc, at + after, length - after);
	return (uint64_t)1 << 32 | crc;
}
