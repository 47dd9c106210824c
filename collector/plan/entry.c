/* SPDX-License-Identifier: MIT */
/* entry.c: see entry.h. */
#include "collector/plan/entry.h"

#include <string.h>

enum { PATCH = 5, NEAR_JUMP = 0xe9, INSTRUCTION_MAXIMUM = 15 };

static const struct {
	const char *word, *text;
} refusals[REFUSED_COUNT] = {
	[REFUSED_NOT] = {"", ""},
	[REFUSED_TOO_SHORT] = {"too_short", "it is shorter than the jump that would replace its first bytes"},
	[REFUSED_UNKNOWN_CODE] = {"unknown_code", "its first instructions are not known to the disassembler"},
	[REFUSED_CALL] = {"call", "a call stands among its first bytes, and its return address must be right"},
	[REFUSED_CANNOT_MOVE] = {"cannot_move", "an instruction among its first bytes works only where it stands"},
	[REFUSED_TOO_LONG] = {"too_long", "its first instructions are too long to be moved"},
	[REFUSED_JUMP_INTO] = {"jump_into", "a jump leads into its first bytes"},
	[REFUSED_LOOP] = {"loop", "a loop leads back to its start, and each round would look like a call"},
	[REFUSED_JUMP_TABLE] = {"jump_table", "a jump table or a stored address leads into its first bytes"},
	[REFUSED_LANDING_PAD] = {"landing_pad", "an exception handler begins in its first bytes"},
	[REFUSED_FRAME_SET_UP] = {"frame_set_up", "its name stands in the middle of other code, where no return address is at hand"},
	[REFUSED_CHOSEN] = {"chosen_at_load", "it chooses its code when the program is loaded (IFUNC); what it chooses has names of its own"},
	[REFUSED_SIGNAL_RETURN] = {"signal_return", "debuggers and unwinders know it by its bytes"},
	[REFUSED_GO] = {"go", "it may be Go code, whose stacks are too small for hooks and are moved"},
	[REFUSED_UNPROVABLE] = {"unprovable", "code that cannot be read clearly may jump into its first bytes"},
};

const char *refusal_text(enum refusal refusal)
{
	return refusal < REFUSED_COUNT ? refusals[refusal].text : "unknown";
}

const char *refusal_word(enum refusal refusal)
{
	return refusal < REFUSED_COUNT ? refusals[refusal].word : "unknown";
}

int entry_context_open(struct entry_context *context)
{
	if (cs_open(CS_ARCH_X86, CS_MODE_64, &context->capstone) != CS_ERR_OK)
		return -1;
	cs_option(context->capstone, CS_OPT_DETAIL, CS_OPT_ON);
	context->instruction = cs_malloc(context->capstone);
	if (context->instruction)
		return 0;
	cs_close(&context->capstone);
	return -1;
}

void entry_context_close(struct entry_context *context)
{
	if (context->instruction)
		cs_free(context->instruction, 1);
	context->instruction = NULL;
	cs_close(&context->capstone);
}

/* ---- what stands at the entry ------------------------------------------ */

static int is_endbr(const uint8_t *bytes, size_t room)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	return room >= sizeof endbr64 && memcmp(bytes, endbr64, sizeof endbr64) == 0;
}

/*
 * Length of the NOP at `bytes`, of those that compilers and assemblers write: 90, and 0f 1f /0, both with operand size
 * and segment prefixes; 0: there is none. It may be longer than `room`, which bounds what is read.
 */
static size_t nop_length(const uint8_t *bytes, size_t room)
{
	size_t at = 0;
	while (at < room && (bytes[at] == 0x66 || bytes[at] == 0x2e))
		at++;
	if (at < room && bytes[at] == 0x90)
		return at + 1;
	if (at + 2 >= room || bytes[at] != 0x0f || bytes[at + 1] != 0x1f)
		return 0;
	unsigned mode = bytes[at + 2] >> 6, base = bytes[at + 2] & 7;
	size_t length = at + 3 + (mode != 3 && base == 4);
	return length + (mode == 1 ? 1 : mode == 2 || (mode == 0 && base == 5) ? 4 : 0);
}

/* Bytes of a call to a profiler's hook at `bytes`; 0: none stands there. */
static size_t profiler_call(const struct entry_context *context, const uint8_t *bytes, uint64_t address, size_t room)
{
	size_t prefix = room && bytes[0] == 0x67;
	size_t operation = prefix + (room > prefix && bytes[prefix] == 0xff ? 2 : 1);
	if (!context->is_profiler || room < operation + 4)
		return 0;
	int direct = bytes[prefix] == 0xe8, indirect = !direct && bytes[prefix] == 0xff && bytes[prefix + 1] == 0x15;
	int32_t distance;
	memcpy(&distance, bytes + operation, sizeof distance);
	if (!direct && !indirect)
		return 0;
	return context->is_profiler(context->context, address + operation + 4 + (uint64_t)(int64_t)distance, indirect) ? operation + 4 : 0;
}

/* mov $15, %rax; syscall: what signal handlers return to. */
static int is_signal_return(const uint8_t *bytes, size_t room)
{
	static const uint8_t code[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};
	return room >= sizeof code && memcmp(bytes, code, sizeof code) == 0;
}

/* ---- moving one instruction -------------------------------------------- */

struct move {
	struct entry *entry;
	uint64_t address;  /* of the function */
	uint64_t from;	   /* where the patch goes */
	int ends;	   /* nothing is executed behind the last one */
	uint64_t targets[PATCH]; /* of jumps among them */
	unsigned target_count;
};

static enum refusal append(struct move *move, const uint8_t *bytes, size_t length)
{
	struct entry *entry = move->entry;
	if (entry->code_length + length > LORG_ENTRY_MAXIMUM)
		return REFUSED_TOO_LONG;
	memcpy(entry->code + entry->code_length, bytes, length);
	entry->code_length += (uint8_t)length;
	return REFUSED_NOT;
}

/* The 32-bit displacement at `at` of the code, counted from its end so far, leads to `target`. */
static enum refusal append_fixup(struct move *move, uint8_t at, uint64_t target)
{
	struct entry *entry = move->entry;
	int64_t distance = (int64_t)(target - move->address);
	if (entry->fixup_count == sizeof entry->fixups / sizeof *entry->fixups || distance != (int32_t)distance)
		return REFUSED_TOO_LONG;
	entry->fixups[entry->fixup_count++] = (struct entry_fixup){at, entry->code_length, (int32_t)distance};
	return REFUSED_NOT;
}

/* opcode: of the form with a 32-bit displacement. */
static enum refusal append_jump(struct move *move, const uint8_t *opcode, size_t length, uint64_t target)
{
	uint8_t code[6] = {0};
	memcpy(code, opcode, length);
	enum refusal refusal = append(move, code, length + 4);
	return refusal ? refusal : append_fixup(move, (uint8_t)(move->entry->code_length - 4), target);
}

/* Where they lead to is looked at when it is known how much the patch replaces. */
static void note_target(struct move *move, uint64_t target)
{
	if (move->target_count < PATCH)
		move->targets[move->target_count++] = target;
}

static enum refusal check_targets(const struct move *move, size_t taken)
{
	for (unsigned i = 0; i < move->target_count; i++) {
		if (move->targets[i] == move->from || move->targets[i] == move->address)
			return REFUSED_LOOP;
		if (move->targets[i] > move->address && move->targets[i] < move->from + taken)
			return REFUSED_JUMP_INTO;
	}
	return REFUSED_NOT;
}

/*
 * Whatever it is, it goes to where it would have gone. A call is the last one taken: what it pushes is the address
 * behind it in the function itself, so that the return address is what it always was.
 */
static enum refusal append_return_address(struct move *move, uint64_t behind)
{
	static const uint8_t code[] = {
		0x48, 0x8d, 0x64, 0x24, 0xf8, /* lea -8(%rsp), %rsp */
		0x50,			      /* push %rax */
		0x48, 0x8d, 0x05, 0, 0, 0, 0, /* lea behind(%rip), %rax */
	};
	static const uint8_t rest[] = {
		0x48, 0x89, 0x44, 0x24, 0x08, /* mov %rax, 8(%rsp) */
		0x58,			      /* pop %rax */
	};
	enum refusal refusal = append(move, code, sizeof code);
	if (!refusal)
		refusal = append_fixup(move, (uint8_t)(move->entry->code_length - 4), behind);
	return refusal ? refusal : append(move, rest, sizeof rest);
}

static int in_group(const cs_insn *instruction, unsigned group)
{
	for (uint8_t i = 0; i < instruction->detail->groups_count; i++)
		if (instruction->detail->groups[i] == group)
			return 1;
	return 0;
}

/* Its operand relative to the instruction pointer; NULL: none. *wrong: relative to eip. */
static const cs_x86_op *relative_operand(const cs_insn *instruction, int *wrong)
{
	const cs_x86 *details = &instruction->detail->x86;
	*wrong = 0;
	for (uint8_t i = 0; i < details->op_count; i++) {
		const cs_x86_op *operand = &details->operands[i];
		if (operand->type != X86_OP_MEM)
			continue;
		if (operand->mem.base == X86_REG_RIP)
			return operand;
		*wrong |= operand->mem.base == X86_REG_EIP;
	}
	return NULL;
}

static enum refusal move_relative(struct move *move, const cs_insn *instruction, const cs_x86_op *operand)
{
	const cs_x86_encoding *encoding = &instruction->detail->x86.encoding;
	int32_t displacement;
	/* Its size is always 4, whatever Capstone makes of an operand size prefix. */
	if (encoding->disp_offset == 0 || encoding->disp_offset + 4 > instruction->size)
		return REFUSED_UNKNOWN_CODE;
	memcpy(&displacement, instruction->bytes + encoding->disp_offset, sizeof displacement);
	if (displacement != operand->mem.disp)
		return REFUSED_UNKNOWN_CODE;
	uint8_t at = (uint8_t)(move->entry->code_length + encoding->disp_offset);
	enum refusal refusal = append(move, instruction->bytes, instruction->size);
	return refusal ? refusal : append_fixup(move, at, instruction->address + instruction->size + (uint64_t)(int64_t)displacement);
}

/* Behind prefixes that change nothing here: bnd, notrack and hints. */
static const uint8_t *opcode_of(const cs_insn *instruction)
{
	const uint8_t *at = instruction->bytes;
	while (*at == 0xf2 || *at == 0x3e || *at == 0x2e)
		at++;
	return at;
}

static enum refusal move_direct_jump(struct move *move, const cs_insn *instruction)
{
	const uint8_t *opcode = opcode_of(instruction);
	uint64_t target = (uint64_t)instruction->detail->x86.operands[0].imm;
	note_target(move, target);
	if (*opcode == NEAR_JUMP || *opcode == 0xeb) {
		const uint8_t jump = NEAR_JUMP;
		move->ends = 1;
		return append_jump(move, &jump, 1, target);
	}
	uint8_t condition[2] = {0x0f, 0};
	if ((*opcode & 0xf0) == 0x70)
		condition[1] = (uint8_t)(0x80 | (*opcode & 0x0f));
	else if (opcode[0] == 0x0f && (opcode[1] & 0xf0) == 0x80)
		condition[1] = opcode[1];
	else
		return REFUSED_CANNOT_MOVE;
	return append_jump(move, condition, sizeof condition, target);
}

static int has_direct_target(const cs_insn *instruction)
{
	const cs_x86 *details = &instruction->detail->x86;
	return details->op_count == 1 && details->operands[0].type == X86_OP_IMM;
}

static int uses_stack_pointer(const cs_x86_op *operand)
{
	return operand->type == X86_OP_REG ? operand->reg == X86_REG_RSP : operand->mem.base == X86_REG_RSP || operand->mem.base == X86_REG_ESP;
}

/* call *operand becomes jmp *operand: the next number in the middle of the byte that names the operand. */
static enum refusal append_jump_like(struct move *move, const cs_insn *instruction)
{
	uint8_t code[INSTRUCTION_MAXIMUM];
	unsigned at = instruction->detail->x86.encoding.modrm_offset;
	memcpy(code, instruction->bytes, instruction->size);
	if (at == 0 || at >= instruction->size || code[at - 1] != 0xff || (code[at] & 0x38) != 2 << 3)
		return REFUSED_CALL;
	code[at] = (uint8_t)((code[at] & ~0x38) | 4 << 3);
	return append(move, code, instruction->size);
}

static enum refusal move_call(struct move *move, const cs_insn *instruction)
{
	const uint8_t *opcode = opcode_of(instruction);
	uint64_t behind = instruction->address + instruction->size;
	int wrong;
	if (behind < move->from + PATCH)
		return REFUSED_CALL; /* it would return into the patch */
	if (*opcode == 0x67)
		opcode++;
	if (*opcode == 0xe8 && has_direct_target(instruction)) {
		const uint8_t jump = NEAR_JUMP;
		uint64_t target = (uint64_t)instruction->detail->x86.operands[0].imm;
		if (target == behind)
			return REFUSED_CALL; /* to learn where it stands */
		if (target != move->address && target != move->from)
			note_target(move, target);
		enum refusal refusal = append_return_address(move, behind);
		move->ends = 1;
		return refusal ? refusal : append_jump(move, &jump, 1, target);
	}
	const cs_x86_op *operand = relative_operand(instruction, &wrong);
	if (wrong || has_direct_target(instruction) || instruction->detail->x86.op_count != 1)
		return REFUSED_CALL;
	if (!operand) {
		if (uses_stack_pointer(&instruction->detail->x86.operands[0]))
			return REFUSED_CALL;
		enum refusal pushed = append_return_address(move, behind);
		move->ends = 1;
		return pushed ? pushed : append_jump_like(move, instruction);
	}
	if (opcode[0] != 0xff || opcode[1] != 0x15)
		return REFUSED_CALL;
	static const uint8_t jump_indirect[] = {0xff, 0x25};
	enum refusal refusal = append_return_address(move, behind);
	move->ends = 1;
	return refusal ? refusal : append_jump(move, jump_indirect, 2, behind + (uint64_t)operand->mem.disp);
}

static int stays_where_it_stands(const cs_insn *instruction)
{
	switch (instruction->id) {
	case X86_INS_LOOP:
	case X86_INS_LOOPE:
	case X86_INS_LOOPNE:
	case X86_INS_JCXZ:
	case X86_INS_JECXZ:
	case X86_INS_JRCXZ:
	case X86_INS_XBEGIN:
	case X86_INS_LJMP:
	case X86_INS_LCALL:
		return 1;
	default:
		return instruction->detail->x86.prefix[2] && in_group(instruction, CS_GRP_JUMP);
	}
}

static enum refusal move_instruction(struct move *move, const cs_insn *instruction)
{
	int wrong;
	if (nop_length(instruction->bytes, instruction->size) == instruction->size)
		return REFUSED_NOT; /* it does nothing here, so it does nothing there */
	if (is_endbr(instruction->bytes, instruction->size))
		return REFUSED_JUMP_INTO; /* meant to be jumped to */
	if (stays_where_it_stands(instruction))
		return REFUSED_CANNOT_MOVE;
	if (in_group(instruction, CS_GRP_CALL))
		return move_call(move, instruction);
	if (in_group(instruction, CS_GRP_JUMP) && has_direct_target(instruction))
		return move_direct_jump(move, instruction);
	if (instruction->id == X86_INS_JMP || in_group(instruction, CS_GRP_RET) || in_group(instruction, CS_GRP_IRET) ||
	    instruction->id == X86_INS_UD2 || instruction->id == X86_INS_HLT)
		move->ends = 1;
	else if (in_group(instruction, CS_GRP_JUMP))
		return REFUSED_CANNOT_MOVE;
	const cs_x86_op *operand = relative_operand(instruction, &wrong);
	if (wrong)
		return REFUSED_CANNOT_MOVE;
	return operand ? move_relative(move, instruction, operand) : append(move, instruction->bytes, instruction->size);
}

/* ---- the entry as a whole ---------------------------------------------- */

/* Padding that assemblers put between functions; nothing is executed there. */
static int is_padding(const uint8_t *bytes, size_t length, size_t room)
{
	for (size_t at = 0; at < length;) {
		size_t nop = nop_length(bytes + at, room - at);
		if (!nop && bytes[at] != 0xcc && bytes[at] != 0)
			return 0;
		at += nop ? nop : 1;
	}
	return 1;
}

static enum refusal take_instructions(struct entry_context *context, const uint8_t *bytes, uint64_t address, size_t size, size_t room,
				      struct entry *entry)
{
	struct move move = {.entry = entry, .address = address, .from = address + entry->skip};
	const uint8_t *at = bytes + entry->skip;
	size_t left = size > entry->skip ? size - entry->skip : 0, first_length = 0;
	uint64_t place = move.from;
	while (place < move.from + PATCH && left && !move.ends) {
		if (!cs_disasm_iter(context->capstone, &at, &left, &place, context->instruction))
			return REFUSED_UNKNOWN_CODE;
		first_length = first_length ? first_length : context->instruction->size;
		uint8_t code = entry->code_length;
		enum refusal refusal = move_instruction(&move, context->instruction);
		if (refusal)
			return refusal;
		if (entry->code_length != code && entry->moved_count < LORG_MOVED_MAXIMUM) {
			entry->moved[entry->moved_count].code = code;
			entry->moved[entry->moved_count++].original = (uint8_t)(context->instruction->address - move.from);
		}
	}
	size_t taken = place - move.from;
	if (taken < PATCH) {
		/* What is too short ends here, and nobody needs the padding behind it. */
		size_t padding = PATCH - taken;
		size_t used = entry->skip + taken;
		if (!move.ends || room < used + padding || !is_padding(bytes + used, padding, room - used))
			return REFUSED_TOO_SHORT;
		taken = PATCH;
	}
	if (taken > sizeof entry->original)
		return REFUSED_TOO_LONG;
	enum refusal refusal = check_targets(&move, taken);
	if (refusal)
		return refusal;
	entry->taken = (uint8_t)taken;
	entry->kind = entry->code_length == 0 && first_length == taken ? LORG_ENTRY_NOP : LORG_ENTRY_RELOCATE;
	return REFUSED_NOT;
}

void entry_analyse(struct entry_context *context, const uint8_t *bytes, uint64_t address, size_t size, size_t room, struct entry *entry)
{
	memset(entry, 0, sizeof *entry);
	size = size < room ? size : room;
	size_t skip = is_endbr(bytes, size) ? 4 : 0;
	/* A profiler's own hook is called as ever: it counts by where it was called from. */
	skip += profiler_call(context, bytes + skip, address + skip, size - skip);
	entry->skip = (uint8_t)skip;
	if (is_signal_return(bytes + skip, size - skip))
		entry->refusal = REFUSED_SIGNAL_RETURN;
	else
		entry->refusal = take_instructions(context, bytes, address, size, room, entry);
	if (entry->refusal) {
		entry->kind = LORG_ENTRY_NONE;
		return;
	}
	entry->original_length = entry->taken;
	memcpy(entry->original, bytes + skip, entry->taken);
}
