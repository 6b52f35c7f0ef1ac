/* comm: derives the proofs and keys of a connection from its handshake and the run's secret.
 * Licence: Apache-2.0 */
#include "comm/prove.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>

mr_status prove_draw(uint8_t out[SEAL_HASH])
{
    return getrandom(out, SEAL_HASH, 0) == SEAL_HASH
               ? MR_OK
               : mr_fail(MR_E_NODE,
                         "the system has no random numbers: %s; expected getrandom to work",
                         strerror(errno));
}

/* A keyed hash of the first bytes of a handshake; each label has its own key. */
static void hash(const char *secret, const char *label, const talk *t, size_t bytes,
                 uint8_t out[SEAL_HASH])
{
    static const char salt[] = "moonreel rendezvous 2";
    uint8_t root[SEAL_HASH], key[SEAL_HASH];
    seal_hmac(salt, sizeof salt - 1, secret ? secret : "", secret ? strlen(secret) : 0, root);
    seal_expand(root, label, key, sizeof key);
    seal_hmac(key, sizeof key, t, bytes, out);
}

void prove_hello(const char *secret, const talk *t, uint8_t proof[SEAL_HASH])
{
    hash(secret, "hello", t, offsetof(talk, said.proof), proof);
}

void prove_answer(const char *secret, const talk *t, uint8_t proof[SEAL_HASH])
{
    hash(secret, "answer", t, offsetof(talk, got.proof), proof);
}

void prove_keys(const char *secret, const talk *t, bool calls, seal_way *in, seal_way *out)
{
    uint8_t both[SEAL_HASH], caller[SEAL_HASH], listener[SEAL_HASH];
    if (!secret || !*secret)
        return;
    hash(secret, "keys", t, sizeof *t, both);
    seal_expand(both, "from the caller", caller, sizeof caller);
    seal_expand(both, "from the listener", listener, sizeof listener);
    seal_begin(in, calls ? listener : caller, false, t->said.hides);
    seal_begin(out, calls ? caller : listener, true, t->said.hides);
}
