/*
 * The optional pre-shared key: mutual challenge and response, constant time, by libsodium.
 */
#ifndef HWS_CORE_AUTH_H
#define HWS_CORE_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HWS__NONCE 32
#define HWS__PROOF 32

/** 1 if this build has libsodium. */
int hws__auth_available(void);
void hws__auth_nonce(unsigned char nonce[HWS__NONCE]);
/** The proof of `role` ('c' or 's') for both nonces. */
void hws__auth_prove(const unsigned char *key, size_t key_length, char role,
                     const unsigned char *client_nonce, const unsigned char *server_nonce,
                     unsigned char proof[HWS__PROOF]);
bool hws__auth_verify(const unsigned char *key, size_t key_length, char role,
                      const unsigned char *client_nonce, const unsigned char *server_nonce,
                      const unsigned char proof[HWS__PROOF]);

#endif
