/*
 * Settings of the user's with which UCX would end the process, later and without a word: they are refused when a
 * context is opened.
 */
#ifndef HWS_CORE_UCX_REFUSE_H
#define HWS_CORE_UCX_REFUSE_H

#include <stdint.h>

/**
 * @param[in] pairs  as of hws__ucx_config(); the environment is looked at, too
 * @return 0, or HWS_E_CONFIG naming the key
 */
int32_t hws__ucx_refuse(const char *const *pairs);

#endif
