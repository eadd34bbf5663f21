// Deleters of adopted memory that wait for a device's work.
#pragma once

namespace rabbet {

/// Run del(ctx); what it throws is logged.
void run_deleter(void (*del)(void*), void* ctx) noexcept;
/// Run del(ctx) when the stream has done what it was given so far; at once where the backend cannot
/// tell. On a thread of the program, never in the backend's callback: it may call the device.
void delete_behind(int backend, int device, void* stream, void (*del)(void*), void* ctx);
/// Run those whose work is done. Called where the device was waited for, or its memory is short.
void run_due_deleters();

}  // namespace rabbet
