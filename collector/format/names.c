/* SPDX-License-Identifier: MIT */
/* names.c: see names.h. */
#include "collector/format/names.h"

#include <lorg/plan.h>

#include "collector/value/prototype.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { ADDRESS_CACHE = 4096 };

struct named_function {
	int known;
	struct place place;
	char *function, *source, *raw_name; /* ours; the source of a hooked function is its module */
	char buffer[32];
};

struct cached_address {
	const struct trace_module *module;
	uint64_t address;
	int line_known, arity_known;
	struct place place;
	char buffer[32];
};

struct names {
	const struct trace *trace;
	struct symbols *symbols;
	struct prototypes *prototypes; /* the shipped ones; NULL: not needed yet */
	struct symbol_file **files;        /* by number of the module */
	struct named_function **functions; /* by number of the function */
	struct named_function **hooked;    /* by number of the hooked function */
	unsigned file_room, function_room, hooked_room;
	struct cached_address cache[ADDRESS_CACHE];
	struct cached_address nowhere;
	struct named_function untold;
	struct place caller;
};

struct names *names_new(const struct trace *trace)
{
	struct names *names = calloc(1, sizeof *names);
	if (!names)
		return NULL;
	names->trace = trace;
	uint64_t recorded = trace->has_clock && trace->first_tick
				    ? trace_time(trace, trace->first_tick) + (uint64_t)trace->wall_offset_ns
				    : 0;
	names->symbols = symbols_new(recorded);
	if (!names->symbols) {
		free(names);
		return NULL;
	}
	return names;
}

static void forget_functions(struct names *names)
{
	for (unsigned i = 0; i < names->function_room; i++) {
		if (!names->functions[i])
			continue;
		free(names->functions[i]->function);
		free(names->functions[i]->source);
		free(names->functions[i]);
	}
	for (unsigned i = 0; i < names->hooked_room; i++) {
		if (!names->hooked[i])
			continue;
		free(names->hooked[i]->function);
		free(names->hooked[i]->source);
		free(names->hooked[i]->raw_name);
		free(names->hooked[i]);
	}
	free(names->hooked);
	free(names->functions);
	names->hooked = names->functions = NULL;
	names->hooked_room = names->function_room = 0;
}

void names_free(struct names *names)
{
	if (!names)
		return;
	forget_functions(names);
	free(names->files);
	symbols_free(names->symbols);
	prototypes_free(names->prototypes);
	free(names);
}

void names_bind(struct names *names, const struct trace *trace)
{
	forget_functions(names);
	if (names->files)
		memset(names->files, 0, names->file_room * sizeof *names->files);
	memset(names->cache, 0, sizeof names->cache);
	names->trace = trace;
}

struct symbols *names_symbols(struct names *names)
{
	return names->symbols;
}

/* Makes room for element `number` of an array of pointers. */
static int reach(void ***array, unsigned *room, unsigned number)
{
	if (number < *room)
		return 1;
	unsigned larger = *room ? *room : 64;
	while (larger <= number)
		larger *= 2;
	void **grown = reallocarray(*array, larger, sizeof *grown);
	if (!grown)
		return 0;
	memset(grown + *room, 0, (larger - *room) * sizeof *grown);
	*array = grown;
	*room = larger;
	return 1;
}

static struct symbol_file *file_of(struct names *names, const struct trace_module *module)
{
	if (!reach((void ***)&names->files, &names->file_room, module->number))
		return NULL;
	struct symbol_file **file = &names->files[module->number];
	if (!*file)
		*file = symbols_file(names->symbols, module->path.bytes, module->path.length, module->build_id.bytes,
				     module->build_id.length);
	return *file;
}

static void resolve(struct names *names, struct cached_address *cached)
{
	struct symbol_file *file = file_of(names, cached->module);
	struct place *place = &cached->place;
	struct symbol symbol;
	uint64_t in_file = cached->address - cached->module->base;
	*place = (struct place){
		.module = file ? symbol_file_module(file) : "?", .raw_name = "", .function = cached->buffer, .arity = -1};
	if (file && symbols_find(names->symbols, file, in_file, &symbol)) {
		place->function = symbol.name;
		place->raw_name = symbol.raw_name;
		place->offset = symbol.offset;
		place->named = 1;
		return;
	}
	snprintf(cached->buffer, sizeof cached->buffer, "+0x%llx", (unsigned long long)in_file);
}

static void resolve_line(struct names *names, struct cached_address *cached)
{
	struct symbol_file *file = file_of(names, cached->module);
	const char *source;
	int line;
	cached->line_known = 1;
	if (file && symbols_line(names->symbols, file, cached->address - cached->module->base, &source, &line)) {
		cached->place.source = source;
		cached->place.line = line;
	}
}

static void resolve_arity(struct names *names, struct cached_address *cached)
{
	struct symbol_file *file = file_of(names, cached->module);
	struct place *place = &cached->place;
	char *error = NULL;
	cached->arity_known = 1;
	if (!names->prototypes)
		names->prototypes = prototypes_read(NULL, &error);
	free(error);
	const struct value_prototype *prototype =
		names->prototypes && place->named ? prototype_find(names->prototypes, place->module, place->raw_name) : NULL;
	if (prototype)
		place->arity = (int)prototype->parameter_count;
	else if (file)
		place->arity = symbols_arity(names->symbols, file, cached->address - cached->module->base);
}

const struct place *names_address(struct names *names, const struct trace_image *image, uint64_t address, uint64_t tick, int want)
{
	const struct trace_module *module = trace_module(names->trace, image, address, tick);
	struct cached_address *cached = &names->nowhere;
	if (!module) {
		snprintf(cached->buffer, sizeof cached->buffer, "0x%llx", (unsigned long long)address);
		cached->place = (struct place){.module = "?", .function = cached->buffer, .raw_name = "", .arity = -1};
		return &cached->place;
	}
	uint64_t hash = (address ^ (uint64_t)module->number << 40) * 0x9e3779b97f4a7c15ull;
	cached = &names->cache[hash >> 52];
	if (cached->module != module || cached->address != address) {
		cached->module = module;
		cached->address = address;
		cached->line_known = cached->arity_known = 0;
		resolve(names, cached);
	}
	if ((want & PLACE_LINE) && !cached->line_known)
		resolve_line(names, cached);
	if ((want & PLACE_ARITY) && !cached->arity_known)
		resolve_arity(names, cached);
	return &cached->place;
}

const struct place *names_caller(struct names *names, const struct trace_image *image, uint64_t address, uint64_t tick, int want)
{
	const struct place *call = names_address(names, image, address - 1, tick, want);
	if (!call->named)
		return names_address(names, image, address, tick, 0);
	names->caller = *call;
	names->caller.offset++;
	return &names->caller;
}

/* Told with the function, else by debug information. */
static int arity_of(struct names *names, const struct trace_image *image, const struct trace_function *function)
{
	enum { ARITY_MAXIMUM = 255 };
	const struct trace_module *module = trace_module(names->trace, image, function->address, function->tick);
	struct symbol_file *file = module ? file_of(names, module) : NULL;
	if (function->arity > 0 && function->arity <= ARITY_MAXIMUM)
		return (int)function->arity;
	return file && function->name.length == 0 ? symbols_arity(names->symbols, file, function->address - module->base)
						  : -1;
}

/* A copy without zero bytes, demangled. */
static char *text_copy(struct trace_text text)
{
	char *plain = strndup((const char *)text.bytes, text.length), *shown;
	if (!plain)
		return NULL;
	shown = symbol_demangle(plain);
	free(plain);
	return shown;
}

static void name_function(struct names *names, const struct trace_image *image, const struct trace_function *function,
			  struct named_function *named)
{
	const struct trace_image *of =
		trace_module(names->trace, function->image, function->address, function->tick) ? function->image : image;
	named->known = 1;
	named->place = *names_address(names, of, function->address, function->tick, function->name.length == 0);
	named->place.arity = arity_of(names, of, function);
	if (function->name.length) {
		named->function = text_copy(function->name);
		named->source = function->file.length ? text_copy(function->file) : NULL;
		named->place.function = named->function ? named->function : "?";
		named->place.raw_name = "";
		named->place.source = named->source;
		named->place.line = 0;
		named->place.named = 1;
		return;
	}
	if (!named->place.named) { /* its text is in a cache that will be used again */
		snprintf(named->buffer, sizeof named->buffer, "%s", named->place.function);
		named->place.function = named->buffer;
	}
}

static const struct place *untold(struct names *names, uint32_t slot)
{
	struct named_function *named = &names->untold;
	snprintf(named->buffer, sizeof named->buffer, "function-%u", slot);
	named->place = (struct place){.module = "?", .function = named->buffer, .raw_name = "", .arity = -1};
	return &named->place;
}

/* A static function is shown with its file: there may be several of its name. */
static char *hooked_text(const struct trace_hooked *hooked)
{
	char *name = text_copy(hooked->name), *whole = NULL;
	if (!name || !hooked->file.length)
		return name;
	if (asprintf(&whole, "%s@%.*s", name, (int)hooked->file.length, (const char *)hooked->file.bytes) < 0)
		return name;
	free(name);
	return whole;
}

static void name_hooked(const struct trace_hooked *hooked, struct named_function *named)
{
	enum { ARITY_MAXIMUM = 255 };
	named->known = 1;
	named->source = strndup((const char *)hooked->module.bytes, hooked->module.length);
	named->raw_name = strndup((const char *)hooked->name.bytes, hooked->name.length);
	named->function = hooked->name.length ? hooked_text(hooked) : NULL;
	snprintf(named->buffer, sizeof named->buffer, "+0x%llx", (unsigned long long)hooked->offset);
	named->place = (struct place){
		.module = named->source ? named->source : "?",
		.function = named->function ? named->function : named->buffer,
		.raw_name = named->raw_name ? named->raw_name : "",
		.named = named->function != NULL,
		.arity = hooked->arity < ARITY_MAXIMUM ? (int)hooked->arity : -1,
	};
}

static const struct place *hooked_function(struct names *names, uint32_t function)
{
	const struct trace_hooked *hooked = trace_hooked(names->trace, function);
	if (!hooked || !reach((void ***)&names->hooked, &names->hooked_room, hooked->number))
		return untold(names, function);
	struct named_function **named = &names->hooked[hooked->number];
	if (!*named && !(*named = calloc(1, sizeof **named)))
		return untold(names, function);
	if (!(*named)->known)
		name_hooked(hooked, *named);
	return &(*named)->place;
}

const struct place *names_function(struct names *names, const struct trace_image *image, uint32_t slot, uint64_t tick)
{
	if (slot >= LORG_FIRST_HOOKED_FUNCTION)
		return hooked_function(names, slot);
	const struct trace_function *function = trace_function(names->trace, image, slot, tick);
	if (!function || !reach((void ***)&names->functions, &names->function_room, function->number))
		return untold(names, slot);
	struct named_function **named = &names->functions[function->number];
	if (!*named && !(*named = calloc(1, sizeof **named)))
		return untold(names, slot);
	if (!(*named)->known)
		name_function(names, image, function, *named);
	return &(*named)->place;
}

void names_hook(struct names *names, uint32_t hook, struct hook_name *name)
{
	const struct trace_hook *told = trace_hook(names->trace, hook);
	/* The upper half of its flags is the hook under whose plain name it is shown: read for __read_chk. */
	const struct trace_hook *shown = told ? trace_hook(names->trace, told->flags >> 16) : NULL;
	if (shown)
		told = shown;
	if (told) {
		*name = (struct hook_name){
			.library = told->library[0] ? told->library : "?", .name = told->name, .arity = told->arity};
		return;
	}
	*name = (struct hook_name){.library = "?"};
	if (hook == UINT32_MAX)
		snprintf(name->buffer, sizeof name->buffer, "inherited");
	else
		snprintf(name->buffer, sizeof name->buffer, "hook-%u", hook);
	name->name = name->buffer;
}

int names_waits_on_address(struct names *names, uint32_t hook, uint64_t object)
{
	enum { FAMILY_LOCK = 3 }; /* as preload/hook.h numbers its families */
	const struct trace_hook *told = trace_hook(names->trace, hook);
	int is_small = object + ((uint64_t)1 << 31) <= (uint64_t)1 << 33; /* pids may be negative: -1 is any child */
	return told && (told->family == FAMILY_LOCK || !is_small);
}

const char *names_driver(uint32_t driver)
{
	static const char *const text[LORG_DRIVER_COUNT] = {
		"none", "unknown", "tcp", "udp",     "raw", "unix", "unix_dgram", "unix_seqpacket",
		"pipe", "fifo",    "tty", "eventfd", "mq",  "sysv", "netlink",    "vsock",
	};
	return driver < LORG_DRIVER_COUNT ? text[driver] : "unknown";
}

const char *names_birth(uint32_t birth)
{
	static const char *const text[] = {
		"unknown", "fork",  "vfork", "clone",   "thread",  "posix_spawn",
		"system",  "popen", "exec",  "command", "runtime", "unseen",
	};
	return birth < sizeof text / sizeof *text ? text[birth] : "unknown";
}

const char *names_signal(uint32_t number, char buffer[24])
{
	const char *name = number < 65 ? sigabbrev_np((int)number) : NULL;
	if (name)
		snprintf(buffer, 24, "SIG%s", name);
	else if (number == 32 || number == 33) /* libc's own */
		snprintf(buffer, 24, number == 32 ? "SIGCANCEL" : "SIGSETXID");
	else if (number >= 34 && number <= 64) /* as glibc numbers them */
		snprintf(buffer, 24, number == 34 ? "SIGRTMIN" : "SIGRTMIN+%u", number - 34);
	else
		snprintf(buffer, 24, "signal %u", number);
	return buffer;
}

const char *names_error(uint32_t error, char buffer[24])
{
	const char *name = strerrorname_np((int)error);
	if (name && error != 0)
		return name;
	snprintf(buffer, 24, "error %u", error);
	return buffer;
}

static size_t written(int length, size_t size)
{
	if (length < 0)
		return 0;
	return (size_t)length < size ? (size_t)length : size - 1;
}

static size_t unix_address(const uint8_t *address, size_t length, char *to, size_t size)
{
	const size_t path = offsetof(struct sockaddr_un, sun_path);
	if (length <= path)
		return written(snprintf(to, size, "unnamed"), size);
	int is_abstract = address[path] == 0;
	size_t shown = is_abstract ? length - path : strnlen((const char *)address + path, length - path);
	if (shown > size)
		shown = size;
	memcpy(to, address + path, shown);
	if (is_abstract)
		to[0] = '@';
	return shown;
}

size_t names_socket_address(const void *address, size_t length, char *to, size_t size)
{
	sa_family_t family;
	char text[INET6_ADDRSTRLEN];
	if (length < sizeof family || size == 0)
		return 0;
	memcpy(&family, address, sizeof family);
	if (family == AF_UNIX)
		return unix_address(address, length, to, size);
	if (family == AF_INET && length >= sizeof(struct sockaddr_in)) {
		struct sockaddr_in internet;
		memcpy(&internet, address, sizeof internet);
		inet_ntop(AF_INET, &internet.sin_addr, text, sizeof text);
		return written(snprintf(to, size, "%s:%u", text, ntohs(internet.sin_port)), size);
	}
	if (family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
		struct sockaddr_in6 internet;
		memcpy(&internet, address, sizeof internet);
		inet_ntop(AF_INET6, &internet.sin6_addr, text, sizeof text);
		return written(snprintf(to, size, "[%s]:%u", text, ntohs(internet.sin6_port)), size);
	}
	return written(snprintf(to, size, "address family %u", family), size);
}

const char *names_port_command(uint32_t command)
{
	/* As preload/hook.h numbers them: enum hook_port_command. */
	static const char *const commands[] = {"0",     "command", "call", "connect", "control", "info",
					       "flush", "close",   "open", "link",    "unlink"};
	return command < sizeof commands / sizeof *commands ? commands[command] : "0";
}

struct trace_text base_name(struct trace_text path)
{
	for (uint32_t i = path.length; i-- > 0;)
		if (path.bytes[i] == '/')
			return (struct trace_text){path.bytes + i + 1, path.length - i - 1};
	return path;
}

struct trace_text program_name(const struct trace_image *image)
{
	struct trace_text argv = image->argv, first;
	if (next_argument(&argv, &first)) {
		first = base_name(first);
		if (first.length)
			return first;
	}
	return base_name(image->file);
}

char *names_type(struct trace_text mangled)
{
	static const char prefix[] = "typeinfo name for ";
	char *symbol, *shown, *type;
	int has_prefix = mangled.length > 2 && memcmp(mangled.bytes, "_Z", 2) == 0;
	if (!mangled.length ||
	    asprintf(&symbol, "%s%.*s", has_prefix ? "" : "_ZTS", (int)mangled.length, (const char *)mangled.bytes) < 0)
		return NULL;
	shown = symbol_demangle(symbol);
	if (shown && strncmp(shown, prefix, sizeof prefix - 1) == 0)
		type = strdup(shown + sizeof prefix - 1);
	else
		type = strdup(shown && strcmp(shown, symbol) != 0 ? shown : has_prefix ? symbol : symbol + 4);
	free(symbol);
	free(shown);
	return type;
}

const char *names_left(uint32_t kind)
{
	static const char *const text[] = {"throw", "pthread_exit", "longjmp", "cancelled"};
	return kind < sizeof text / sizeof *text ? text[kind] : "unknown";
}

int next_argument(struct trace_text *rest, struct trace_text *argument)
{
	if (rest->length == 0)
		return 0;
	const uint8_t *end = memchr(rest->bytes, 0, rest->length);
	argument->bytes = rest->bytes;
	argument->length = end ? (uint32_t)(end - rest->bytes) : rest->length;
	uint32_t step = argument->length + (end ? 1 : 0);
	rest->bytes += step;
	rest->length -= step;
	return 1;
}

int event_is_about_recording(uint32_t id)
{
	switch (id) {
	case LORG_EVENT_FLAGS:
	case LORG_EVENT_CPU_TIME:
	case LORG_EVENT_PATTERN:
	case LORG_EVENT_SESSION:
	case LORG_EVENT_IMAGE:
	case LORG_EVENT_MODULE:
	case LORG_EVENT_MODULE_UNLOADED:
	case LORG_EVENT_FUNCTION:
	case LORG_EVENT_HOOKED_FUNCTION:
	case LORG_EVENT_STRING:
	case LORG_EVENT_CHANNEL:
	case LORG_EVENT_CLOCK:
	case LORG_EVENT_HOOK:
	case LORG_EVENT_MARK:
	case LORG_EVENT_COUNTERS:
	case LORG_EVENT_FUNCTION_COUNTERS:
	case LORG_EVENT_DELIVERED: return 1;
	default: return 0;
	}
}

struct trace_text event_registered(const struct trace *trace, const struct trace_event *event)
{
	EVENT_FIELDS(&event->view, REGISTER, named); /* UNREGISTER is of the same shape */
	struct trace_text name;
	name.bytes = event_bytes_named(&event->view, "name", &name.length);
	const struct trace_port *port = named.kind == 1 && !named.name_length && !named.address_length
						? trace_port(trace, event->process->image, named.fd, named.generation)
						: NULL;
	return port ? port->name : name;
}

void event_exit(const struct trace_event *event, struct lorg_event_EXIT *gone)
{
	const struct trace_exit *known = &event->process->exit;
	if (!gone->outside || gone->reason != LORG_REASON_UNKNOWN || !known->known || event->superseded)
		return;
	gone->reason = known->reason;
	gone->status = known->status;
}

const char *event_tag(const struct event_view *view)
{
	if (!view->description)
		return "unknown";
	switch (view->id) {
	case LORG_EVENT_ENTER_LINE:
	case LORG_EVENT_ENTER_ADDRESS: return "enter";
	case LORG_EVENT_EXIT_LINE:
	case LORG_EVENT_EXIT_ADDRESS: return "exit_function";
	case LORG_EVENT_CATCH_LINE: return "catch";
	case LORG_EVENT_CALL_ENTRY: return "call";
	case LORG_EVENT_RETURN: return "return_from";
	case LORG_EVENT_TIMEOUT: return "receive";
	case LORG_EVENT_SIGNAL_SENT:
	case LORG_EVENT_SIGNAL_RECEIVED: return "signal";
	case LORG_EVENT_IN: return event_number_named(view, "ending", 0) ? "in_exiting" : "in";
	case LORG_EVENT_OUT: return event_number_named(view, "ending", 0) ? "out_exiting" : "out";
	case LORG_EVENT_PORT_IN: return "in";
	case LORG_EVENT_PORT_OUT: return "out";
	default: return view->description->name;
	}
}

const char *event_side_tag(const struct trace_event *event)
{
	uint32_t id = event->view.id;
	if (event->side == SIDE_PROCESS && id == LORG_EVENT_OPEN)
		return "link";
	if (event->side == SIDE_PROCESS && id == LORG_EVENT_CLOSED)
		return "getting_unlinked";
	if (event->side == SIDE_PORT && id == LORG_EVENT_SEND)
		return "port_receive";
	if (event->side == SIDE_PORT && id == LORG_EVENT_RECEIVE)
		return "port_send";
	return event_tag(&event->view);
}
