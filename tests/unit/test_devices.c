/* Unit tests of devices.c: the network devices that a UCX context has. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "devices.h"

static struct sockaddr_storage ipv4(const char *text)
{
    struct sockaddr_storage a = {.ss_family = AF_INET};
    struct sockaddr_in *in = (struct sockaddr_in *)&a;

    in->sin_port = htons(1);
    cr_assert(inet_pton(AF_INET, text, &in->sin_addr) == 1);
    return a;
}

Test(devices, this_machine_has_its_loopback)
{
    struct sockaddr_storage peer = ipv4("127.0.0.1");
    struct hws__devices now;

    hws__devices_read(&now, true);
    cr_assert(now.count > 0);
    cr_assert(hws__device_towards(&now, &peer) == HWS__DEVICE_KNOWN);
    cr_assert(!hws__devices_more(&now));
}

Test(devices, one_that_is_not_known_is_new)
{
    struct sockaddr_storage peer = ipv4("127.0.0.1");
    struct hws__devices none = {0};

    cr_assert(hws__devices_more(&none));
    cr_assert(hws__device_towards(&none, &peer) == HWS__DEVICE_NEW);
}

Test(devices, another_address_of_a_known_one_is_no_news)
{
    struct sockaddr_storage peer = ipv4("127.0.0.1");
    struct hws__devices now;

    hws__devices_read(&now, true);
    for (uint32_t i = 0; i < now.count; i++) {
        now.at[i].family = 0;
    }
    cr_assert(hws__device_towards(&now, &peer) == HWS__DEVICE_KNOWN);
}

Test(devices, beyond_what_can_be_kept_all_are_known)
{
    struct sockaddr_storage peer = ipv4("127.0.0.1");
    struct hws__devices full = {.count = HWS__DEVICES};

    cr_assert(!hws__devices_more(&full));
    cr_assert(hws__device_towards(&full, &peer) == HWS__DEVICE_KNOWN);
}

Test(devices, where_no_way_leads_nothing_can_be_told)
{
    struct sockaddr_storage peer = {.ss_family = AF_UNIX};
    struct hws__devices none = {0};

    cr_assert(hws__device_towards(&none, &peer) == HWS__DEVICE_KNOWN);
}
