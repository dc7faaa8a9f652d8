/* Unit tests of auth.c: who has the key can prove it, nobody else can. */
#include <criterion/criterion.h>
#include <string.h>

#include "auth.h"

static const unsigned char key[] = "a key of thirty-two bytes or so.";
static unsigned char client[HWS__NONCE], server[HWS__NONCE], proof[HWS__PROOF];

static void setup(void)
{
    if (!hws__auth_available()) {
        cr_skip_test("this build has no libsodium");
    }
    hws__auth_nonce(client);
    hws__auth_nonce(server);
    hws__auth_prove(key, sizeof key, 'c', client, server, proof);
}

TestSuite(auth, .init = setup);

static bool verify(const unsigned char *k, size_t length, char role)
{
    return hws__auth_verify(k, length, role, client, server, proof);
}

Test(auth, the_same_key_proves)
{
    cr_assert(verify(key, sizeof key, 'c'));
    hws__auth_prove(key, sizeof key, 's', client, server, proof);
    cr_assert(verify(key, sizeof key, 's'));
}

Test(auth, a_proof_cannot_be_sent_back_to_its_maker)
{
    cr_assert_not(verify(key, sizeof key, 's'));
}

Test(auth, any_flipped_bit_of_the_proof_is_refused)
{
    for (int i = 0; i < 8 * HWS__PROOF; i++) {
        proof[i / 8] ^= (unsigned char)(1 << i % 8);
        cr_assert_not(verify(key, sizeof key, 'c'), "bit %d", i);
        proof[i / 8] ^= (unsigned char)(1 << i % 8);
    }
    cr_assert(verify(key, sizeof key, 'c'));
}

Test(auth, any_flipped_bit_of_a_nonce_is_refused)
{
    unsigned char *const nonces[] = {client, server};

    for (int n = 0; n < 2; n++) {
        for (int i = 0; i < 8 * HWS__NONCE; i++) {
            nonces[n][i / 8] ^= (unsigned char)(1 << i % 8);
            cr_assert_not(verify(key, sizeof key, 'c'), "nonce %d, bit %d", n, i);
            nonces[n][i / 8] ^= (unsigned char)(1 << i % 8);
        }
    }
}

Test(auth, any_flipped_bit_of_the_key_is_refused)
{
    unsigned char other[sizeof key];

    memcpy(other, key, sizeof key);
    for (size_t i = 0; i < 8 * sizeof key; i++) {
        other[i / 8] ^= (unsigned char)(1 << i % 8);
        cr_assert_not(verify(other, sizeof other, 'c'), "bit %zu", i);
        other[i / 8] ^= (unsigned char)(1 << i % 8);
    }
}

Test(auth, a_part_of_the_key_is_not_the_key)
{
    for (size_t length = 1; length < sizeof key; length++) {
        cr_assert_not(verify(key, length, 'c'));
    }
}

Test(auth, a_key_of_every_allowed_length_counts_to_its_last_byte)
{
    static unsigned char big[1024];

    for (size_t length = 16; length <= sizeof big; length++) {
        hws__auth_prove(big, length, 'c', client, server, proof);
        cr_assert(verify(big, length, 'c'));
        big[length - 1] ^= 1;
        cr_assert_not(verify(big, length, 'c'), "%zu", length);
        big[length - 1] ^= 1;
    }
}

Test(auth, the_two_nonces_are_not_interchangeable)
{
    cr_assert_not(hws__auth_verify(key, sizeof key, 'c', server, client, proof));
}

Test(auth, a_proof_of_nothing_is_refused)
{
    memset(proof, 0, sizeof proof);
    cr_assert_not(verify(key, sizeof key, 'c'));
    memset(proof, 0xff, sizeof proof);
    cr_assert_not(verify(key, sizeof key, 'c'));
}

/* A repeated nonce would let an old proof be played again. */
Test(auth, nonces_do_not_repeat)
{
    unsigned char nonces[256][HWS__NONCE];

    for (int i = 0; i < 256; i++) {
        hws__auth_nonce(nonces[i]);
        for (int k = 0; k < i; k++) {
            cr_assert_neq(memcmp(nonces[i], nonces[k], HWS__NONCE), 0);
        }
    }
}
