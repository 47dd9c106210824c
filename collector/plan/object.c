/* SPDX-License-Identifier: MIT */
/* object.c: see object.h. */
#include "collector/plan/object.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collector/base/list.h"

static char *debuginfo_path;

static int no_elf(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base, char **file_name, Elf **elf)
{
	(void)module, (void)data, (void)name, (void)base, (void)file_name, (void)elf;
	return -1;
}

static int no_debug_file(Dwfl_Module *module, void **data, const char *name, Dwarf_Addr base, const char *file, const char *link,
			 GElf_Word crc, char **found)
{
	(void)module, (void)data, (void)name, (void)base, (void)file, (void)link, (void)crc, (void)found;
	return -1;
}

/* The standard search: build-id folders, .gnu_debuglink and, where DEBUGINFOD_URLS is set, debuginfod. */
static const Dwfl_Callbacks with_debug = {
	.find_elf = no_elf,
	.find_debuginfo = dwfl_standard_find_debuginfo,
	.section_address = dwfl_offline_section_address,
	.debuginfo_path = &debuginfo_path,
};
static const Dwfl_Callbacks without_debug = {
	.find_elf = no_elf,
	.find_debuginfo = no_debug_file,
	.section_address = dwfl_offline_section_address,
	.debuginfo_path = &debuginfo_path,
};

static int refuse(char *why, const char *text)
{
	snprintf(why, OBJECT_WHY, "%s", text);
	return -1;
}

/* ---- the file ---------------------------------------------------------- */

static int open_descriptor(struct object *object, char *why)
{
	struct stat status;
	if (object->descriptor < 0)
		object->descriptor = open(object->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (object->descriptor < 0)
		return refuse(why, strerror(errno));
	if (fstat(object->descriptor, &status) || !S_ISREG(status.st_mode))
		return refuse(why, "it is no regular file");
	return 0;
}

static int open_dwfl(struct object *object, int with_debug_files, char *why)
{
	object->dwfl = dwfl_begin(with_debug_files ? &with_debug : &without_debug);
	if (!object->dwfl)
		return refuse(why, dwfl_errmsg(-1));
	dwfl_report_begin(object->dwfl);
	object->dwfl_module = dwfl_report_elf(object->dwfl, object->file_name, object->path, object->descriptor, 0, true);
	if (object->dwfl_module)
		object->descriptor = -1; /* it is libdwfl's now */
	dwfl_report_end(object->dwfl, NULL, NULL);
	object->elf = object->dwfl_module ? dwfl_module_getelf(object->dwfl_module, &object->bias) : NULL;
	return object->elf ? 0 : refuse(why, "it is no ELF file");
}

static int check_header(struct object *object, char *why)
{
	GElf_Ehdr header;
	if (!gelf_getehdr(object->elf, &header))
		return refuse(why, "its ELF header is damaged");
	if (header.e_machine != EM_X86_64 || gelf_getclass(object->elf) != ELFCLASS64)
		return refuse(why, "it is not for x86-64");
	if (header.e_type != ET_EXEC && header.e_type != ET_DYN)
		return refuse(why, "it is neither a program nor a shared library");
	object->at_fixed_address = header.e_type == ET_EXEC;
	object->entry = header.e_entry;
	const unsigned char *bits;
	GElf_Addr address;
	int length = dwfl_module_build_id(object->dwfl_module, &bits, &address);
	if (length > 0) {
		object->build_id_length = (uint32_t)length < sizeof object->build_id ? (uint32_t)length : sizeof object->build_id;
		memcpy(object->build_id, bits, object->build_id_length);
	}
	return 0;
}

/* ---- sections ---------------------------------------------------------- */

static int is_stubs(const char *name)
{
	return strcmp(name, ".plt") == 0 || strncmp(name, ".plt.", 5) == 0 || strcmp(name, ".iplt") == 0;
}

static int by_start(const void *left, const void *right)
{
	const struct object_section *a = left, *b = right;
	return a->start < b->start ? -1 : a->start > b->start;
}

static void note_section(struct object *object, Elf_Scn *section, const GElf_Shdr *header, const char *name)
{
	const int no_bytes = header->sh_type == SHT_NOBITS;
	Elf_Data *data = no_bytes ? NULL : elf_rawdata(section, NULL);
	if (!(header->sh_flags & SHF_ALLOC) || (header->sh_flags & SHF_TLS) || !header->sh_addr || !data || !data->d_buf ||
	    data->d_size < header->sh_size || header->sh_size == 0 || header->sh_addr + header->sh_size < header->sh_addr)
		return;
	object->sections[object->section_count++] = (struct object_section){
		.start = header->sh_addr,
		.end = header->sh_addr + header->sh_size,
		.bytes = data->d_buf,
		.name = name,
		.executable = (header->sh_flags & SHF_EXECINSTR) != 0,
		.writable = (header->sh_flags & SHF_WRITE) != 0,
		.stubs = is_stubs(name),
	};
}

static int read_sections(struct object *object, char *why)
{
	size_t names, count;
	if (elf_getshdrnum(object->elf, &count) || count < 2 || elf_getshdrstrndx(object->elf, &names))
		return refuse(why, "it has no section headers");
	object->sections = calloc(count, sizeof *object->sections);
	if (!object->sections)
		return refuse(why, strerror(ENOMEM));
	for (Elf_Scn *section = NULL; (section = elf_nextscn(object->elf, section));) {
		GElf_Shdr header;
		if (!gelf_getshdr(section, &header))
			continue;
		const char *name = elf_strptr(object->elf, names, header.sh_name);
		note_section(object, section, &header, name ? name : "");
		switch (header.sh_type) {
		case SHT_DYNSYM:
			object->dynamic_symbols = elf_getdata(section, NULL);
			object->symbol_names = header.sh_link;
			object->dynamic_symbol_count = header.sh_entsize ? header.sh_size / header.sh_entsize : 0;
			break;
		case SHT_GNU_versym:
			object->versions = elf_getdata(section, NULL);
			break;
		case SHT_GNU_verneed:
			object->needed_versions = elf_getdata(section, NULL);
			object->needed_count = header.sh_info;
			break;
		case SHT_GNU_verdef:
			object->defined_versions = elf_getdata(section, NULL);
			object->defined_count = header.sh_info;
			break;
		default:
			break;
		}
	}
	qsort(object->sections, object->section_count, sizeof *object->sections, by_start);
	object->text_start = UINT64_MAX;
	for (size_t i = 0; i < object->section_count; i++) {
		const struct object_section *section = &object->sections[i];
		if (i && section->start < object->sections[i - 1].end)
			return refuse(why, "its sections lie over each other");
		if (!section->executable)
			continue;
		object->text_start = section->start < object->text_start ? section->start : object->text_start;
		object->text_end = section->end;
	}
	return object->text_end ? 0 : refuse(why, "it has no code");
}

const struct object_section *object_section_at(const struct object *object, uint64_t address)
{
	size_t low = list_up_to(object->sections, object->section_count, sizeof *object->sections, offsetof(struct object_section, end), address);
	return low < object->section_count && object->sections[low].start <= address ? &object->sections[low] : NULL;
}

const uint8_t *object_bytes(const struct object *object, uint64_t address, size_t *count)
{
	const struct object_section *section = object_section_at(object, address);
	if (!section)
		return NULL;
	*count = section->end - address;
	return section->bytes + (address - section->start);
}

/* ---- dynamic symbols --------------------------------------------------- */

static const char *needed_version(const struct object *object, unsigned wanted)
{
	size_t at = 0;
	for (uint32_t i = 0; object->needed_versions && i < object->needed_count; i++) {
		GElf_Verneed file;
		if (!gelf_getverneed(object->needed_versions, (int)at, &file))
			return NULL;
		size_t place = at + file.vn_aux;
		for (int j = 0; j < file.vn_cnt; j++) {
			GElf_Vernaux version;
			if (!gelf_getvernaux(object->needed_versions, (int)place, &version))
				return NULL;
			if ((version.vna_other & 0x7fff) == wanted)
				return elf_strptr(object->elf, object->symbol_names, version.vna_name);
			place += version.vna_next;
		}
		if (!file.vn_next)
			break;
		at += file.vn_next;
	}
	return NULL;
}

static const char *defined_version(const struct object *object, unsigned wanted)
{
	size_t at = 0;
	for (uint32_t i = 0; object->defined_versions && i < object->defined_count; i++) {
		GElf_Verdef version;
		GElf_Verdaux name;
		if (!gelf_getverdef(object->defined_versions, (int)at, &version))
			return NULL;
		if ((version.vd_ndx & 0x7fff) == wanted && gelf_getverdaux(object->defined_versions, (int)(at + version.vd_aux), &name))
			return elf_strptr(object->elf, object->symbol_names, name.vda_name);
		if (!version.vd_next)
			break;
		at += version.vd_next;
	}
	return NULL;
}

int object_dynamic_symbol(const struct object *object, size_t index, GElf_Sym *symbol, const char **name, const char **version)
{
	GElf_Versym number;
	if (!object->dynamic_symbols || index >= object->dynamic_symbol_count ||
	    !gelf_getsym(object->dynamic_symbols, (int)index, symbol))
		return 0;
	*name = elf_strptr(object->elf, object->symbol_names, symbol->st_name);
	*version = NULL;
	if (!*name)
		return 0;
	if (!object->versions || !gelf_getversym(object->versions, (int)index, &number) || (number & 0x7fff) < 2)
		return 1;
	*version = symbol->st_shndx == SHN_UNDEF ? needed_version(object, number & 0x7fff) : defined_version(object, number & 0x7fff);
	return 1;
}

/* ---- relocations ------------------------------------------------------- */

struct growing {
	size_t slot_room, pointer_room;
};

static int add_slot(struct object *object, struct growing *growing, const struct object_slot *slot)
{
	if (object->slot_count == growing->slot_room) {
		size_t room = growing->slot_room ? 2 * growing->slot_room : 256;
		struct object_slot *more = realloc(object->slots, room * sizeof *more);
		if (!more)
			return -1;
		object->slots = more;
		growing->slot_room = room;
	}
	object->slots[object->slot_count++] = *slot;
	return 0;
}

static int add_pointer(struct object *object, struct growing *growing, uint64_t address)
{
	if (address < object->text_start || address >= object->text_end)
		return 0;
	if (object->pointer_count == growing->pointer_room) {
		size_t room = growing->pointer_room ? 2 * growing->pointer_room : 1024;
		uint64_t *more = realloc(object->pointers, room * sizeof *more);
		if (!more)
			return -1;
		object->pointers = more;
		growing->pointer_room = room;
	}
	object->pointers[object->pointer_count++] = address;
	return 0;
}

static int read_relocation(struct object *object, struct growing *growing, const GElf_Rela *relocation, uint32_t place)
{
	GElf_Sym symbol = {0};
	const char *name = NULL, *version = NULL;
	unsigned type = (unsigned)GELF_R_TYPE(relocation->r_info);
	switch (type) {
	case R_X86_64_RELATIVE:
	case R_X86_64_IRELATIVE:
		return add_pointer(object, growing, (uint64_t)relocation->r_addend);
	case R_X86_64_64:
		if (object_dynamic_symbol(object, GELF_R_SYM(relocation->r_info), &symbol, &name, &version) && symbol.st_shndx)
			return add_pointer(object, growing, symbol.st_value + (uint64_t)relocation->r_addend);
		return 0;
	case R_X86_64_JUMP_SLOT:
	case R_X86_64_GLOB_DAT:
		if (!object_dynamic_symbol(object, GELF_R_SYM(relocation->r_info), &symbol, &name, &version) || !*name)
			return 0;
		break;
	default:
		return 0;
	}
	int kind = GELF_ST_TYPE(symbol.st_info);
	const struct object_slot slot = {
		.address = relocation->r_offset,
		.name = name,
		.version = version,
		.relocation = place,
		.lazy = type == R_X86_64_JUMP_SLOT,
		.is_data = kind == STT_OBJECT || kind == STT_TLS || kind == STT_COMMON || kind == STT_GNU_IFUNC,
	};
	return add_slot(object, growing, &slot);
}

static int by_address(const void *left, const void *right)
{
	const struct object_slot *a = left, *b = right;
	return a->address < b->address ? -1 : a->address > b->address;
}

static int by_value(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;
	return *a < *b ? -1 : *a > *b;
}

static int read_relocations(struct object *object, char *why)
{
	struct growing growing = {0};
	for (Elf_Scn *section = NULL; (section = elf_nextscn(object->elf, section));) {
		GElf_Shdr header;
		if (!gelf_getshdr(section, &header) || header.sh_type != SHT_RELA || !(header.sh_flags & SHF_ALLOC) || !header.sh_entsize)
			continue;
		Elf_Data *data = elf_getdata(section, NULL);
		for (size_t i = 0; data && i < header.sh_size / header.sh_entsize; i++) {
			GElf_Rela relocation;
			if (gelf_getrela(data, (int)i, &relocation) &&
			    read_relocation(object, &growing, &relocation, (uint32_t)i))
				return refuse(why, strerror(ENOMEM));
		}
	}
	if (object->slot_count)
		qsort(object->slots, object->slot_count, sizeof *object->slots, by_address);
	if (object->pointer_count)
		qsort(object->pointers, object->pointer_count, sizeof *object->pointers, by_value);
	return 0;
}

const struct object_slot *object_slot_at(const struct object *object, uint64_t address)
{
	const struct object_slot wanted = {.address = address};
	return object->slot_count ? bsearch(&wanted, object->slots, object->slot_count, sizeof wanted, by_address) : NULL;
}

/* ---- its name ---------------------------------------------------------- */

static const char *read_soname(const struct object *object)
{
	for (Elf_Scn *section = NULL; (section = elf_nextscn(object->elf, section));) {
		GElf_Shdr header;
		if (!gelf_getshdr(section, &header) || header.sh_type != SHT_DYNAMIC || !header.sh_entsize)
			continue;
		Elf_Data *data = elf_getdata(section, NULL);
		for (size_t i = 0; data && i < header.sh_size / header.sh_entsize; i++) {
			GElf_Dyn entry;
			if (gelf_getdyn(data, (int)i, &entry) && entry.d_tag == DT_SONAME)
				return elf_strptr(object->elf, header.sh_link, entry.d_un.d_val);
		}
	}
	return NULL;
}

/* libz.so.1.2.13 calls itself libz.so.1: that is what people write. */
static int name_module(struct object *object)
{
	size_t length = object->soname ? strlen(object->soname) : 0;
	int is_version = length && strncmp(object->file_name, object->soname, length) == 0 &&
			 (object->file_name[length] == 0 || object->file_name[length] == '.');
	object->module = strdup(is_version ? object->soname : object->file_name);
	return object->module ? 0 : -1;
}

struct object *object_open(const char *path, int descriptor, int with_debug_files, char *why)
{
	struct object *object = calloc(1, sizeof *object);
	if (!object || !(object->path = strdup(path))) {
		free(object);
		if (descriptor >= 0)
			close(descriptor);
		refuse(why, strerror(ENOMEM));
		return NULL;
	}
	object->descriptor = descriptor;
	const char *slash = strrchr(object->path, '/');
	object->file_name = slash ? slash + 1 : object->path;
	if (open_descriptor(object, why) == 0 && open_dwfl(object, with_debug_files, why) == 0 && check_header(object, why) == 0 &&
	    read_sections(object, why) == 0 && read_relocations(object, why) == 0) {
		object->soname = read_soname(object);
		if (name_module(object) == 0)
			return object;
		refuse(why, strerror(ENOMEM));
	}
	object_close(object);
	return NULL;
}

void object_close(struct object *object)
{
	if (!object)
		return;
	if (object->dwfl)
		dwfl_end(object->dwfl);
	if (object->descriptor >= 0)
		close(object->descriptor);
	free(object->sections);
	free(object->slots);
	free(object->pointers);
	free(object->module);
	free(object->path);
	free(object);
}
