/* comm, inside: the handshake of a new connection. The listening rank sends a challenge, the
 * connecting rank sends its identity and proof, and the listening rank answers with its own. Proofs
 * and keys are derived from the whole transcript and the run's secret. The secret is never sent. A
 * peer that alters a byte, or replays another handshake, gets neither proof nor keys. Ref: RFC
 * 8446, section 7.1, derives keys from a shared secret and a transcript in the same way.
 * Licence: Apache-2.0 */
#ifndef MR_COMM_PROVE_H
#define MR_COMM_PROVE_H

#include "comm/seal.h"

static const uint64_t PROVE_MAGIC = 0x32306b6e6972726d; /* "mrrink02" */

typedef enum verdict {
    WELCOME,
    OTHER_RUN,
    OTHER_LAUNCH,
    OTHER_SIZE,
    NO_SECRET,
    NO_PLACE,
    RELAYED,
    OTHER_WAY,
    VERDICTS
} verdict;

typedef struct challenge {
    uint64_t magic;
    uint8_t drawn[SEAL_HASH];
} challenge;
typedef struct hello {
    uint64_t magic, run, fence;
    uint8_t drawn[SEAL_HASH];
    int32_t rank, size, link;
    int32_t port;           /* at which the connecting rank listens */
    int32_t dialled, hides; /* the port to which it connected; whether it encrypts */
    uint8_t proof[SEAL_HASH];
} hello;
typedef struct answer {
    int32_t verdict, rank; /* verdict and number of the listening rank */
    uint8_t proof[SEAL_HASH];
} answer;
typedef struct talk {
    challenge asked;
    hello said;
    answer got;
} talk;

/* Draw random bytes that no other connection has. Errors: MR_E_NODE */
mr_status prove_draw(uint8_t out[SEAL_HASH]);
/* The proof of the hello covers all fields before the proof; so does that of the answer. */
void prove_hello(const char *secret, const talk *t, uint8_t proof[SEAL_HASH]);
void prove_answer(const char *secret, const talk *t, uint8_t proof[SEAL_HASH]);
/* Derive the keys of a connection from its handshake; `calls`: this end has connected. Without a
 * secret, both directions stay unsealed. Owns: the caller ends both directions. */
void prove_keys(const char *secret, const talk *t, bool calls, seal_way *in, seal_way *out);

#endif
