/*
 * Tagged messages of tests: posting that succeeds, and numbers as messages.
 */
#ifndef TESTS_SUPPORT_TAG_H
#define TESTS_SUPPORT_TAG_H

#include "support/pair.h"

/* Posts; the operation has an id, which is returned. */
hws_id t_tag_send(hws_id endpoint, const void *buffer, uint64_t length, uint64_t tag);
hws_id t_tag_recv(hws_id source, void *buffer, uint64_t length, uint64_t tag, uint64_t mask);

/* Progress until a message with this tag waits at a source. */
void t_tag_arrived(t_pair *pair, hws_id source, uint64_t tag);

/* Sends a number, and waits for that. */
void t_tag_send_number(t_pair *pair, hws_id from, uint64_t tag, uint64_t value);
/* Receives a number. */
uint64_t t_tag_take_number(t_pair *pair, hws_id source, uint64_t tag, uint64_t mask);

#endif
