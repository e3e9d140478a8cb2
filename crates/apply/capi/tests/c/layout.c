/* Prints the layout of the header's structures, to be compared with the library's. */
#include "check.h"

#define FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field))
#define SIZE(type) printf("%s %zu\n", #type, sizeof(type))

int main(void)
{
    SIZE(nigh_pinned);
    FIELD(nigh_pinned, data);
    FIELD(nigh_pinned, length);
    FIELD(nigh_pinned, opaque);
    SIZE(nigh_pinned_mut);
    FIELD(nigh_pinned_mut, data);
    FIELD(nigh_pinned_mut, length);
    FIELD(nigh_pinned_mut, opaque);
    SIZE(nigh_completion);
    FIELD(nigh_completion, user);
    FIELD(nigh_completion, result);
    FIELD(nigh_completion, reserved);
    FIELD(nigh_completion, pinned);
    SIZE(nigh_request);
    FIELD(nigh_request, action);
    FIELD(nigh_request, parts_count);
    FIELD(nigh_request, offset);
    FIELD(nigh_request, length);
    FIELD(nigh_request, parts);
    FIELD(nigh_request, opaque);
    SIZE(nigh_device);
    FIELD(nigh_device, size);
    FIELD(nigh_device, name);
    FIELD(nigh_device, name_length);
    FIELD(nigh_device, threads);
    FIELD(nigh_device, flags);
    FIELD(nigh_device, user);
    FIELD(nigh_device, bytes);
    FIELD(nigh_device, perform);
    FIELD(nigh_device, close);
    return 0;
}
