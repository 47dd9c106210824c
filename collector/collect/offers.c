/* SPDX-License-Identifier: MIT */
/* offers.c: see offers.h. */
#include "collector/collect/offers.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	FIRST_OFFERS = 1, /* the rest while the program is starting */
	LEAST_OFFERS = 8,
	MOST_OFFERS = 96,
	REFILL_AT_ONCE = 16,
	REFUSED_LIMIT = 1 << 22, /* more programs there cannot have been: the node segment was overwritten */
};
static const uint64_t CALM_NS = 1000000000;

/* Sparse: what is not used costs nothing. Smaller where limits or the address space are tight. */
static const uint64_t arena_sizes[] = {1ull << 30, 256ull << 20, 64ull << 20, 16ull << 20};

static struct lorg_node *node_of(const struct offers *offers)
{
	return (struct lorg_node *)offers->node.at;
}

static int make_offer(struct offers *offers, uint32_t slot)
{
	struct offered *offered = &offers->slot[slot];
	struct lorg_offer *offer = node_offer(&offers->node, slot);
	offered->fill++;
	if (memory_create(&offered->memory, "lorg-arena", offers->layout.size))
		return -1;
	if (offered->memory.descriptor >= offers->descriptors) {
		memory_free(&offered->memory);
		errno = EMFILE;
		return -1;
	}
	random_bytes(offered->id, sizeof offered->id);
	arena_prepare(&offered->memory, &offers->layout, offers->settings, offered->id);
	/* Before anybody can claim it. */
	keep_memory(offers->settings->keeping, KEPT_ARENA, offered->id, &offered->memory);
	offer->descriptor = offered->memory.descriptor;
	offer->size = offers->layout.size;
	memcpy(offer->arena_id, offered->id, sizeof offer->arena_id);
	/* Release: pairs with the acquiring load of whoever claims it. */
	__atomic_store_n(&offer->state, offered->fill << 8 | LORG_OFFER_READY, __ATOMIC_RELEASE);
	offers->ready++;
	return 0;
}

static int make_node(struct offers *offers)
{
	uint8_t id[16];
	if (memory_create(&offers->node, "lorg-node", node_size()))
		return -1;
	random_bytes(id, sizeof id);
	offers->head = node_head(id, offers->settings->node_name);
	node_mend(&offers->node, &offers->head);
	keep_memory(offers->settings->keeping, KEPT_NODE, id, &offers->node);
	return 0;
}

/* Nobody can claim it any more; if nobody has, it is of no use to anyone. */
static void drop_unclaimed(const struct keeping *keeping, struct adopted *adopted, const uint8_t id[16])
{
	uint32_t at = 0;
	for (struct kept *kept; (kept = kept_next(adopted, KEPT_ARENA, &at));) {
		if (memcmp(kept->name.id, id, sizeof kept->name.id) != 0)
			continue;
		forget_memory(keeping, kept->name.id);
		memory_free(&kept->memory);
	}
}

static void adopt_node(struct offers *offers, struct adopted *adopted, struct kept *node)
{
	offers->head = node_head(node->name.id, offers->settings->node_name);
	offers->node = kept_take(node);
	node_mend(&offers->node, &offers->head);
	for (uint32_t slot = 0; slot < LORG_ARENA_OFFERS; slot++) {
		struct lorg_offer *offer = node_offer(&offers->node, slot);
		uint32_t word = __atomic_load_n(&offer->state, __ATOMIC_ACQUIRE);
		uint32_t empty = (word & ~(uint32_t)LORG_OFFER_STATE) | LORG_OFFER_EMPTY;
		/* Who claims it at this moment wins. */
		if ((word & LORG_OFFER_STATE) == LORG_OFFER_READY &&
		    __atomic_compare_exchange_n(&offer->state, &word, empty, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			drop_unclaimed(offers->settings->keeping, adopted, offer->arena_id);
		else
			__atomic_store_n(&offer->state, empty, __ATOMIC_RELEASE);
		offers->slot[slot].fill = word >> 8;
	}
	node_of(offers)->collector_pid = (uint32_t)getpid();
	__atomic_store_n(&node_of(offers)->exhausted, 0, __ATOMIC_RELAXED);
}

/* Arenas that are taken over have the size of those to come. */
static uint64_t adopted_size(struct adopted *adopted)
{
	uint32_t at = 0;
	const struct kept *arena = kept_next(adopted, KEPT_ARENA, &at);
	return arena ? arena->memory.size : 0;
}

/* A lorgd keeps a quarter of its descriptors for those who ask, however many programs there are. */
static int descriptors_for_offers(const struct arena_settings *settings)
{
	struct rlimit limit;
	if (!settings->settle || getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > INT_MAX)
		return INT_MAX;
	return (int)(limit.rlim_cur / 4 * 3);
}

int offers_open(struct offers *offers, const struct arena_settings *settings, uint32_t most, struct adopted *adopted)
{
	const uint32_t programs_size = settings->send_program.size + settings->receive_program.size + settings->programs_room;
	memset(offers, 0, sizeof *offers);
	offers->settings = settings;
	offers->descriptors = descriptors_for_offers(settings);
	offers->most = most < FIRST_OFFERS ? FIRST_OFFERS : most < MOST_OFFERS ? most : MOST_OFFERS;
	offers->wanted = offers->most < LEAST_OFFERS ? offers->most : LEAST_OFFERS;
	offers->least = offers->wanted;
	offers->node.descriptor = -1;
	uint32_t first = 0;
	struct kept *node = kept_next(adopted, KEPT_NODE, &first);
	if (node)
		adopt_node(offers, adopted, node);
	else if (make_node(offers))
		return -1;
	uint64_t fixed_size = adopted_size(adopted);
	if (fixed_size) {
		offers->layout = arena_layout(fixed_size, programs_size);
		return 0; /* the first one is made with the others */
	}
	for (size_t i = 0; i < sizeof arena_sizes / sizeof *arena_sizes; i++) {
		offers->layout = arena_layout(arena_sizes[i], programs_size);
		if (make_offer(offers, 0) == 0)
			break;
	}
	if (!offers->ready) {
		int error = errno;
		offers_close(offers);
		errno = error;
		return -1;
	}
	for (uint32_t slot = 1; slot < FIRST_OFFERS; slot++)
		make_offer(offers, slot);
	return 0;
}

/* A program has written over the offer, and nobody has taken it: what can still be claimed is made anew. */
static int is_spoilt(struct offers *offers, uint32_t slot, uint32_t state)
{
	struct offered *offered = &offers->slot[slot];
	if (state == (offered->fill << 8 | LORG_OFFER_CLAIMED) || !memory_abandoned(&offered->memory))
		return 0;
	forget_memory(offers->settings->keeping, offered->id);
	memory_free(&offered->memory);
	offers->ready--;
	return 1;
}

static int is_ready(const struct offers *offers, uint32_t slot, const struct lorg_offer *offer, uint32_t state)
{
	const struct offered *offered = &offers->slot[slot];
	return state == (offered->fill << 8 | LORG_OFFER_READY) && offer->descriptor == offered->memory.descriptor &&
	       offer->size == offers->layout.size && memcmp(offer->arena_id, offered->id, sizeof offered->id) == 0;
}

int offers_next_claimed(struct offers *offers, struct offered *claimed)
{
	for (uint32_t slot = 0; slot < LORG_ARENA_OFFERS; slot++) {
		struct lorg_offer *offer = node_offer(&offers->node, slot);
		struct offered *offered = &offers->slot[slot];
		uint32_t state = __atomic_load_n(&offer->state, __ATOMIC_ACQUIRE);
		if (!offered->memory.at || is_ready(offers, slot, offer, state))
			continue;
		if (is_spoilt(offers, slot, state)) {
			__atomic_store_n(&offer->state, offered->fill << 8 | LORG_OFFER_EMPTY, __ATOMIC_RELEASE);
			continue;
		}
		*claimed = *offered;
		offered->memory.at = NULL;
		offers->ready--;
		offers->claimed++;
		__atomic_store_n(&offer->state, offered->fill << 8 | LORG_OFFER_EMPTY, __ATOMIC_RELEASE);
		return 1;
	}
	return 0;
}

static void withdraw_down_to(struct offers *offers, uint32_t keep)
{
	for (uint32_t slot = LORG_ARENA_OFFERS; slot-- > 0 && offers->ready > keep;) {
		uint32_t count = offers->slot[slot].fill << 8;
		uint32_t expected = count | LORG_OFFER_READY;
		struct lorg_offer *offer = node_offer(&offers->node, slot);
		/* Whoever claims it at this moment wins, and is found by offers_next_claimed. */
		if (!offers->slot[slot].memory.at ||
		    !__atomic_compare_exchange_n(&offer->state, &expected, count | LORG_OFFER_EMPTY, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		forget_memory(offers->settings->keeping, offers->slot[slot].id);
		memory_free(&offers->slot[slot].memory);
		offers->ready--;
	}
}

/* Who claims one finds a collector that lives, however long it has been on offer. */
static void beat(struct offers *offers, uint64_t now_ns)
{
	if (offers->settings->settle) /* a lorgd's */
		__atomic_store_n(&node_of(offers)->heartbeat_ns, now_ns, __ATOMIC_RELAXED);
	for (uint32_t slot = 0; slot < LORG_ARENA_OFFERS; slot++) {
		struct lorg_arena *arena = (struct lorg_arena *)offers->slot[slot].memory.at;
		if (arena)
			__atomic_store_n(&arena->heartbeat_ns, now_ns, __ATOMIC_RELAXED);
	}
}

void offers_refill(struct offers *offers, uint32_t claimed, uint64_t now_ns)
{
	if (claimed * 4 > offers->wanted) {
		offers->wanted = offers->wanted * 2 < offers->most ? offers->wanted * 2 : offers->most;
		offers->calm_ns = now_ns;
	} else if (claimed) {
		offers->calm_ns = now_ns;
	} else if (now_ns - offers->calm_ns > CALM_NS) {
		offers->wanted = offers->least;
		withdraw_down_to(offers, offers->wanted);
	}
	node_mend(&offers->node, &offers->head);
	beat(offers, now_ns);
	int made = 0, failed = 0;
	/* One by one while nobody asks: a short program needs no more than its own, and does not wait for the others. */
	int at_once = claimed && offers->claimed > 1 ? REFILL_AT_ONCE : 1;
	for (uint32_t slot = 0; slot < LORG_ARENA_OFFERS && offers->ready < offers->wanted && made < at_once; slot++) {
		if (offers->slot[slot].memory.at)
			continue;
		failed = make_offer(offers, slot);
		if (failed)
			break; /* no descriptor or memory just now */
		made++;
	}
	struct lorg_node *node = node_of(offers);
	__atomic_store_n(&node->exhausted, failed && !offers->ready, __ATOMIC_RELAXED);
}

uint32_t offers_refused(const struct offers *offers)
{
	const struct lorg_node *node = node_of(offers);
	uint32_t refused = __atomic_load_n(&node->refused, __ATOMIC_RELAXED);
	return refused < REFUSED_LIMIT ? refused : 0;
}

uint32_t offers_failures(const struct offers *offers, enum lorg_attach_failure reason)
{
	uint32_t failures = __atomic_load_n(&node_of(offers)->failures[reason], __ATOMIC_RELAXED);
	return failures < REFUSED_LIMIT ? failures : 0;
}

int offers_claim(struct offers *offers, struct lorg_offer *claimed)
{
	for (uint32_t slot = 0; slot < LORG_ARENA_OFFERS; slot++) {
		struct lorg_offer *offer = node_offer(&offers->node, slot);
		uint32_t count = offers->slot[slot].fill << 8;
		uint32_t expected = count | LORG_OFFER_READY;
		if (!offers->slot[slot].memory.at ||
		    !__atomic_compare_exchange_n(&offer->state, &expected, count | LORG_OFFER_CLAIMED, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		/* From our own memory: what is shared may have been scribbled on. */
		*claimed = (struct lorg_offer){LORG_OFFER_CLAIMED, offers->slot[slot].memory.descriptor, offers->layout.size, {0}};
		memcpy(claimed->arena_id, offers->slot[slot].id, sizeof claimed->arena_id);
		return 0;
	}
	return -1;
}

void offers_withdraw(struct offers *offers)
{
	struct lorg_node *node = node_of(offers);
	withdraw_down_to(offers, 0);
	/* Programs to come do not wait for what will not come. */
	__atomic_store_n(&node->exhausted, 1, __ATOMIC_RELAXED);
}

void offers_close(struct offers *offers)
{
	for (uint32_t slot = 0; slot < LORG_ARENA_OFFERS; slot++)
		if (offers->slot[slot].memory.at)
			memory_free(&offers->slot[slot].memory);
	memory_free(&offers->node);
}
