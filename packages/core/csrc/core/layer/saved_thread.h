// The whole state of a thread's calls, to go on with on another thread.
#pragma once
#include "rabbet/abi.h"

namespace rabbet {

/// See RbHost.tls_save, tls_restore and tls_free; throw Error.
RbTls* tls_save();
void tls_restore(const RbTls& saved);
void tls_free(RbTls* saved) noexcept;

}  // namespace rabbet
