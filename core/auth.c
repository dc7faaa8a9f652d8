#include "auth.h"
#include <string.h>

#if defined(HWS_HAVE_SODIUM)
#include <sodium.h>

_Static_assert(crypto_auth_BYTES == HWS__PROOF, "proof size");

int hws__auth_available(void)
{
    return sodium_init() >= 0;
}

void hws__auth_nonce(unsigned char nonce[HWS__NONCE])
{
    randombytes_buf(nonce, HWS__NONCE);
}

/* The role is part of what is proved, so that a proof cannot be sent back to its maker. */
void hws__auth_prove(const unsigned char *key, size_t key_length, char role,
                     const unsigned char *client_nonce, const unsigned char *server_nonce,
                     unsigned char proof[HWS__PROOF])
{
    unsigned char text[8 + 2 * HWS__NONCE] = "hawser1";
    unsigned char k[crypto_auth_KEYBYTES];

    text[7] = (unsigned char)role;
    memcpy(text + 8, client_nonce, HWS__NONCE);
    memcpy(text + 8 + HWS__NONCE, server_nonce, HWS__NONCE);
    crypto_generichash(k, sizeof k, key, key_length, NULL, 0);
    crypto_auth(proof, text, sizeof text, k);
    sodium_memzero(k, sizeof k);
}

bool hws__auth_verify(const unsigned char *key, size_t key_length, char role,
                      const unsigned char *client_nonce, const unsigned char *server_nonce,
                      const unsigned char proof[HWS__PROOF])
{
    unsigned char expected[HWS__PROOF];

    hws__auth_prove(key, key_length, role, client_nonce, server_nonce, expected);
    return sodium_memcmp(expected, proof, HWS__PROOF) == 0;
}

#else

int hws__auth_available(void)
{
    return 0;
}

void hws__auth_nonce(unsigned char nonce[HWS__NONCE])
{
    memset(nonce, 0, HWS__NONCE);
}

void hws__auth_prove(const unsigned char *key, size_t key_length, char role,
                     const unsigned char *client_nonce, const unsigned char *server_nonce,
                     unsigned char proof[HWS__PROOF])
{
    (void)key, (void)key_length, (void)role, (void)client_nonce, (void)server_nonce;
    memset(proof, 0, HWS__PROOF);
}

bool hws__auth_verify(const unsigned char *key, size_t key_length, char role,
                      const unsigned char *client_nonce, const unsigned char *server_nonce,
                      const unsigned char proof[HWS__PROOF])
{
    (void)key, (void)key_length, (void)role, (void)client_nonce, (void)server_nonce, (void)proof;
    return false; /* a context with a key cannot be opened in this build */
}

#endif
