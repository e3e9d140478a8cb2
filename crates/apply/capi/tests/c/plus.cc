// The header in C++, and a program that uses the library.
#include <cstring>
#include <string>

#include <nigh.h>

int main()
{
    const std::string settings = "memory = '1M'\n[[disk]]\nname = 'disk'\ntarget = 'memory:1M'\n";
    nigh_host *host = nullptr;
    nigh_disk *disk = nullptr;
    nigh_pinned pinned{};
    if (nigh_open(settings.data(), settings.size(), &host) != 0 || nigh_open_disk(host, "disk", 4, &disk) != 0)
        return 1;
    if (nigh_write(disk, 5, "abc", 3, NIGH_DURABLE) != 0 || nigh_pin(disk, 5, 3, 0, &pinned) != 0)
        return 2;
    if (std::memcmp(pinned.data, "abc", 3) != 0 || nigh_unpin(&pinned) != 0)
        return 3;
    return nigh_close_disk(disk) != 0 || nigh_close(host, 5000) != 0;
}
