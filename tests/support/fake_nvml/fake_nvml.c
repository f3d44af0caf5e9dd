/* A driver without a card: the part of NVML that Moorage calls, as a library that a test steers while it is loaded.
 *
 * What the cards are like stands in a text file, named by FAKE_NVML_CONTROL when NVML is opened, which every call reads
 * anew. So a test in another process has full control. The file is written by __init__.py; its lines:
 *
 *   driver VERSION                  what nvmlSystemGetDriverVersion says
 *   card BUS TOTAL USED PERCENT LOST MIG UUID NAME
 *   slice CARD TOTAL USED UUID      of the card with that number; CARD and SLICE count from 0
 *   process CARD SLICE MPS PID BYTES  SLICE is -1 for the whole card; BYTES 18446744073709551615 stand for "not told"
 *   drift BYTES TIMES               used, and the first process, grow so much after each of the first TIMES listings
 *   refuse CALL CODE                this call fails with this code
 *   hang CALL SECONDS               this call ("*": every call) does not return before this moment of the boot clock
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };
enum { CARDS = 8, SLICES = 8, PROCESSES = 64, RULES = 16, TEXT = 96 };

typedef unsigned long long bytes_t;
typedef struct handle *device_t; /* 1 + card * 16, and the slice's number plus 1 */

struct part { bytes_t total, used; char uuid[TEXT]; };
struct card { struct part all; unsigned bus, percent; int lost, mig, slices; struct part slice[SLICES]; char name[TEXT]; };
struct process { int card, slice, mps; unsigned pid; bytes_t bytes; };
struct rule { char call[TEXT]; double value; };
struct machine {
    char driver[TEXT];
    int cards, processes, refusals, hangs;
    struct card card[CARDS];
    struct process process[PROCESSES];
    struct rule refusal[RULES], hang[RULES];
    long long drift;
    int drifts;
};

struct process_info { unsigned pid; bytes_t bytes; unsigned gpu_instance, compute_instance; };
struct memory { bytes_t total, free, used; };
struct utilization { unsigned gpu, memory; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

int fake_nvml_opened; /* how often more than closed; by its name a test knows which library was loaded */

static char control[4096];
static int listings;

static void read_line(struct machine *m, const char *line) {
    struct card *card = &m->card[m->cards];
    struct process *process = &m->process[m->processes];
    struct rule *refusal = &m->refusal[m->refusals], *hang = &m->hang[m->hangs];
    struct part part;
    int owner;
    sscanf(line, "driver %95s", m->driver);
    sscanf(line, "drift %lld %d", &m->drift, &m->drifts);
    if (m->cards < CARDS && sscanf(line, "card %u %llu %llu %u %d %d %95s %95[^\n]", &card->bus, &card->all.total,
            &card->all.used, &card->percent, &card->lost, &card->mig, card->all.uuid, card->name) == 8) m->cards++;
    if (sscanf(line, "slice %d %llu %llu %95s", &owner, &part.total, &part.used, part.uuid) == 4)
        m->card[owner].slice[m->card[owner].slices++] = part;
    if (m->processes < PROCESSES && sscanf(line, "process %d %d %d %u %llu", &process->card, &process->slice,
            &process->mps, &process->pid, &process->bytes) == 5) m->processes++;
    if (m->refusals < RULES && sscanf(line, "refuse %95s %lf", refusal->call, &refusal->value) == 2) m->refusals++;
    if (m->hangs < RULES && sscanf(line, "hang %95s %lf", hang->call, &hang->value) == 2) m->hangs++;
}

static void look(struct machine *m) {
    char line[512];
    FILE *file = fopen(control, "r");
    memset(m, 0, sizeof *m);
    if (!file) return;
    while (fgets(line, sizeof line, file)) read_line(m, line);
    fclose(file);
}

static int is_held_up(const struct machine *m, const char *call) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    for (int i = 0; i < m->hangs; i++)
        if ((!strcmp(m->hang[i].call, "*") || !strcmp(m->hang[i].call, call))
            && now.tv_sec + now.tv_nsec / 1e9 < m->hang[i].value) return 1;
    return 0;
}

/* Every call begins here: wait while it is to hang, then look at the machine, then say whether it is refused. */
static int enter(struct machine *m, const char *call) {
    struct timespec moment = {0, 5 * 1000 * 1000};
    for (look(m); is_held_up(m, call); look(m)) nanosleep(&moment, NULL);
    for (int i = 0; i < m->refusals; i++)
        if (!strcmp(m->refusal[i].call, call)) return (int)m->refusal[i].value;
    return fake_nvml_opened ? OK : UNINITIALIZED;
}

static device_t handle_of(int card, int slice) { return (device_t)(size_t)(1 + card * 16 + slice + 1); }
static int card_of(device_t device) { return (int)(((size_t)device - 1) / 16); }
static int slice_of(device_t device) { return (int)(((size_t)device - 1) % 16) - 1; }

/* The same for a call about one device. */
static int enter_at(struct machine *m, const char *call, device_t device, struct part *part) {
    int refused = enter(m, call);
    if (refused) return refused;
    if (!device || card_of(device) >= m->cards) return INVALID;
    struct card *card = &m->card[card_of(device)];
    if (card->lost) return LOST;
    if (slice_of(device) >= card->slices) return INVALID;
    *part = slice_of(device) < 0 ? card->all : card->slice[slice_of(device)];
    return OK;
}

static long long drifted(const struct machine *m) {
    return m->drift * (listings < m->drifts ? listings : m->drifts);
}

int nvmlInitWithFlags(unsigned flags) {
    struct machine m;
    const char *named = getenv("FAKE_NVML_CONTROL");
    (void)flags;
    if (!named) return NOT_SUPPORTED;
    snprintf(control, sizeof control, "%s", named);
    listings = 0;
    int refused = enter(&m, "nvmlInitWithFlags");
    if (refused && refused != UNINITIALIZED) return refused;
    fake_nvml_opened++;
    return OK;
}

int nvmlShutdown(void) {
    struct machine m;
    int refused = enter(&m, "nvmlShutdown");
    if (!refused) fake_nvml_opened--;
    return refused;
}

const char *nvmlErrorString(int code) { (void)code; return "an error of the fake driver"; }

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    struct machine m;
    int refused = enter(&m, "nvmlSystemGetDriverVersion");
    if (!refused) snprintf(version, length, "%s", m.driver);
    return refused;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    struct machine m;
    int refused = enter(&m, "nvmlDeviceGetCount_v2");
    *count = (unsigned)m.cards;
    return refused;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device) {
    struct machine m;
    int refused = enter(&m, "nvmlDeviceGetHandleByIndex_v2");
    if (refused) return refused;
    if ((int)index >= m.cards) return INVALID;
    *device = handle_of((int)index, -1);
    return m.card[index].lost ? LOST : OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *device) {
    struct machine m;
    int refused = enter(&m, "nvmlDeviceGetHandleByUUID");
    if (refused) return refused;
    for (int card = 0; card < m.cards; card++)
        for (int slice = -1; slice < m.card[card].slices; slice++)
            if (!strcmp(uuid, slice < 0 ? m.card[card].all.uuid : m.card[card].slice[slice].uuid)) {
                *device = handle_of(card, slice);
                return m.card[card].lost ? LOST : OK;
            }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(device_t device, char *uuid, unsigned length) {
    struct machine m;
    struct part part;
    int refused = enter_at(&m, "nvmlDeviceGetUUID", device, &part);
    if (!refused) snprintf(uuid, length, "%s", part.uuid);
    return refused;
}

int nvmlDeviceGetName(device_t device, char *name, unsigned length) {
    struct machine m;
    struct part part;
    int refused = enter_at(&m, "nvmlDeviceGetName", device, &part);
    if (!refused) snprintf(name, length, "%s", m.card[card_of(device)].name);
    return refused;
}

int nvmlDeviceGetPciInfo_v3(device_t device, struct pci *pci) {
    struct machine m;
    struct part part;
    int refused = enter_at(&m, "nvmlDeviceGetPciInfo_v3", device, &part);
    if (!refused) pci->bus = m.card[card_of(device)].bus;
    return refused;
}

int nvmlDeviceGetMemoryInfo(device_t device, struct memory *memory) {
    struct machine m;
    struct part part;
    int refused = enter_at(&m, "nvmlDeviceGetMemoryInfo", device, &part);
    if (refused) return refused;
    memory->total = part.total;
    memory->used = part.used + (bytes_t)drifted(&m);
    memory->free = memory->total - memory->used;
    return OK;
}

static int list(const struct machine *m, device_t device, int mps, unsigned *count, struct process_info *infos) {
    unsigned found = 0;
    for (int i = 0; i < m->processes; i++) {
        const struct process *process = &m->process[i];
        if (process->card != card_of(device) || process->slice != slice_of(device) || process->mps != mps) continue;
        if (infos && found < *count) {
            bytes_t bytes = process->bytes + (bytes_t)(found ? 0 : drifted(m));
            infos[found] = (struct process_info){process->pid, bytes, ~0u, ~0u};
        }
        found++;
    }
    int fits = found == 0 || (infos && found <= *count);
    *count = found;
    return fits ? OK : TOO_SMALL;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count, struct process_info *infos) {
    struct machine m;
    struct part part;
    int refused = enter_at(&m, "nvmlDeviceGetComputeRunningProcesses_v3", device, &part);
    if (refused) return refused;
    int result = list(&m, device, 0, count, infos);
    listings += infos != NULL;
    return result;
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t device, unsigned *count, struct process_info *infos) {
    struct machine m;
    struct part part;
    int refused = enter_at(&m, "nvmlDeviceGetMPSComputeRunningProcesses_v3", device, &part);
    return refused ? refused : list(&m, device, 1, count, infos);
}

int nvmlDeviceGetUtilizationRates(device_t device, struct utilization *utilization) {
    struct machine m;
    struct part part;
    int refused = enter_at(&m, "nvmlDeviceGetUtilizationRates", device, &part);
    if (refused) return refused;
    if (slice_of(device) >= 0) return NOT_SUPPORTED; /* as on a real slice */
    utilization->gpu = utilization->memory = m.card[card_of(device)].percent;
    return OK;
}

int nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending) {
    struct machine m;
    struct part part;
    int refused = enter_at(&m, "nvmlDeviceGetMigMode", device, &part);
    if (!refused) *current = *pending = (unsigned)m.card[card_of(device)].mig;
    return refused;
}

int nvmlDeviceGetMaxMigDeviceCount(device_t device, unsigned *count) {
    struct machine m;
    struct part part;
    *count = 7; /* as on the cards that can be divided; most of the numbers are then without a slice */
    return enter_at(&m, "nvmlDeviceGetMaxMigDeviceCount", device, &part);
}

int nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned index, device_t *slice) {
    struct machine m;
    struct part part;
    int refused = enter_at(&m, "nvmlDeviceGetMigDeviceHandleByIndex", device, &part);
    if (refused) return refused;
    if ((int)index >= m.card[card_of(device)].slices) return NOT_FOUND;
    *slice = handle_of(card_of(device), (int)index);
    return OK;
}
