/* comm: ChaCha20-Poly1305 of libcrypto, if that is installed. The library is loaded at run time;
 * the functions called here are equal in versions 1.1 and 3. Ref: EVP_EncryptInit(3).
 * Licence: Apache-2.0 */
#include "comm/seal.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { GET_TAG = 0x10, SET_TAG = 0x11 }; /* EVP_CTRL_AEAD_GET_TAG, EVP_CTRL_AEAD_SET_TAG */

/* Stands for EVP_CIPHER_CTX. */
struct crypto_key {
    int hidden;
};

typedef const void *cipher_fn(void);
typedef crypto_key *new_fn(void);
typedef void free_fn(crypto_key *k);
typedef int init_fn(crypto_key *k, const void *cipher, void *engine, const uint8_t *key,
                    const uint8_t *nonce, int seals);
typedef int update_fn(crypto_key *k, uint8_t *out, int *out_bytes, const uint8_t *in, int bytes);
typedef int final_fn(crypto_key *k, uint8_t *out, int *out_bytes);
typedef int ctrl_fn(crypto_key *k, int what, int n, void *value);

static struct {
    cipher_fn *cipher;
    new_fn *make;
    free_fn *drop;
    init_fn *init;
    update_fn *update;
    final_fn *finish;
    ctrl_fn *ctrl;
    bool there;
} lib;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static bool find(void *so, const char *name, void *function)
{
    // ISO C has no cast from object to function pointer; POSIX defines it for dlsym
    void *at = dlsym(so, name);
    memcpy(function, &at, sizeof at);
    return at != NULL;
}

static void open_lib(void)
{
    static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1"};
    const char *set = getenv("MOONREEL_LIBCRYPTO");
    void *so = set && *set ? dlopen(set, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t i = 0; i < MR_COUNT(names) && !so && !(set && *set); i++)
        so = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    lib.there =
        so && find(so, "EVP_chacha20_poly1305", &lib.cipher) &&
        find(so, "EVP_CIPHER_CTX_new", &lib.make) && find(so, "EVP_CIPHER_CTX_free", &lib.drop) &&
        find(so, "EVP_CipherInit_ex", &lib.init) && find(so, "EVP_CipherUpdate", &lib.update) &&
        find(so, "EVP_CipherFinal_ex", &lib.finish) && find(so, "EVP_CIPHER_CTX_ctrl", &lib.ctrl);
}

crypto_key *crypto_new(const uint8_t key[SEAL_KEY], bool seals)
{
    pthread_once(&opened, open_lib);
    crypto_key *k = lib.there ? lib.make() : NULL;
    // the library may be configured without this cipher
    if (k && lib.init(k, lib.cipher(), NULL, key, NULL, seals) != 1)
        lib.drop(k), k = NULL;
    return k;
}

void crypto_free(crypto_key *k)
{
    if (k)
        lib.drop(k);
}

/* with out NULL, `in` is associated data */
static bool turn(crypto_key *k, const void *in, size_t bytes, void *out)
{
    uint8_t none[SEAL_TAG];
    int n = 0;
    return bytes <= INT_MAX && (bytes == 0 || lib.update(k, out, &n, in, (int)bytes) == 1) &&
           lib.finish(k, none, &n) == 1;
}

bool crypto_seal(crypto_key *k, const uint8_t nonce[SEAL_NONCE], const void *in, size_t bytes,
                 void *out, uint8_t tag[SEAL_TAG])
{
    return lib.init(k, NULL, NULL, NULL, nonce, -1) == 1 && turn(k, in, bytes, out) &&
           lib.ctrl(k, GET_TAG, SEAL_TAG, tag) == 1;
}

bool crypto_open(crypto_key *k, const uint8_t nonce[SEAL_NONCE], void *data, size_t bytes,
                 bool hidden, const uint8_t tag[SEAL_TAG])
{
    uint8_t expected[SEAL_TAG];
    memcpy(expected, tag, sizeof expected);
    return lib.init(k, NULL, NULL, NULL, nonce, -1) == 1 &&
           lib.ctrl(k, SET_TAG, SEAL_TAG, expected) == 1 &&
           turn(k, data, bytes, hidden ? data : NULL);
}
