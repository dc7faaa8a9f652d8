/*
 * Connections of a test to itself, as UCX's are in a program, without UCX.
 */
#ifndef TESTS_UNIT_ONE_CONNECTION_H
#define TESTS_UNIT_ONE_CONNECTION_H

#include <netinet/in.h>
#include <stdint.h>

/* Of the listener. */
extern uint16_t t_port;

void t_listen(void);
void t_stop_listening(void);
/* One connection from an address of this machine: the accepted side, and the client's. */
int t_connect_from(uint32_t address, int *client);
/* As those between two hosts are, from another address. */
int t_connect_one(int *client);

#endif
