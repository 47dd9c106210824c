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
/*
 * The instruction takes three cycles and one may begin in each: three parts side by side are three times as fast. What
 * PART more bytes make of a checksum is linear in its bits, so that a table of its bytes joins the parts.
 */
enum { PART = 1024, WAYS = 3 };

static uint32_t later[4][256]; /* of a checksum's byte: what PART zero bytes make of it */

__attribute__((target("sse4.2"))) static uint32_t of_words(uint32_t crc, const uint8_t *at, size_t length)
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

__attribute__((constructor)) static void fill_later(void)
{
	static const uint8_t zeros[PART];
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("sse4.2"))
		return;
	for (unsigned bit = 0; bit < 32; bit++) {
		uint32_t moved = of_words((uint32_t)1 << bit, zeros, sizeof zeros);
		for (unsigned byte = 0; byte < 256; byte++)
			if (byte >> bit % 8 & 1)
				later[bit / 8][byte] ^= moved;
	}
}

static uint32_t after_part(uint32_t crc)
{
	return later[0][crc & 255] ^ later[1][crc >> 8 & 255] ^ later[2][crc >> 16 & 255] ^ later[3][crc >> 24];
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_instruction(uint32_t crc, const uint8_t *at, size_t length)
{
	for (; length >= WAYS * PART; at += WAYS * PART, length -= WAYS * PART) {
		uint64_t state[WAYS] = {crc, 0, 0}, word[WAYS];
		for (size_t i = 0; i < PART; i += sizeof *word) {
			for (unsigned way = 0; way < WAYS; way++)
				memcpy(&word[way], at + way * PART + i, sizeof *word);
			for (unsigned way = 0; way < WAYS; way++)
				state[way] = __builtin_ia32_crc32di(state[way], word[way]);
		}
		crc = after_part(after_part((uint32_t)state[0]) ^ (uint32_t)state[1]) ^ (uint32_t)state[2];
	}
	return of_words(crc, at, length);
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
