/* bind: the lock type, shared by moonreel.core.run and moonreel.core.ckpt. Licence: Apache-2.0 */
#ifndef MOONREEL_BIND_RUN_H
#define MOONREEL_BIND_RUN_H

#include "bind/bind.h"
#include "moonreel/run.h"

extern const char mr_bind_lock_type[];

#endif
