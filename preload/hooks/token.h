/* SPDX-License-Identifier: MIT */
/*
 * token.h: sequence tokens on their way (seq_trace(3)). A process that has one gives it to each message that it sends on a
 * port; who receives bytes of that message has it from then on; a message without one takes away what its receiver had.
 * Tokens are set by match specifications. They travel in the node segment (abi.h, struct lorg_carried_token), by the
 * channel and the offsets of the message's bytes.
 *
 * While nobody on the node has ever had one, a call costs nothing for it; no function here makes a system call.
 */
#ifndef LORG_PRELOAD_TOKEN_H
#define LORG_PRELOAD_TOKEN_H

#include "preload/hook.h"

/* Before a send on that channel (0: not known yet): the receiver may be faster than our return. */
HIDDEN void token_departs(struct hook_call *call, uint32_t channel);
/* `length` bytes at `offset` of the channel were sent, or received. */
HIDDEN void token_sent(struct hook_call *call, uint32_t channel, uint64_t offset, uint64_t length);
HIDDEN void token_arrived(struct hook_call *call, uint32_t channel, uint64_t offset, uint64_t length);
/* The call is over: nothing more is sent. */
HIDDEN void token_settle(struct hook_call *call);

/* What SEQ_TRACE tells of the message at hand, but for its bytes; 0: nothing. Once a message. */
HIDDEN int token_tells(struct hook_call *call, struct lorg_event_SEQ_TRACE *event);

#endif
