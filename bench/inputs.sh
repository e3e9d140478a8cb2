#!/usr/bin/env bash
# AOIO trained on one input and measured on another (docs/papers/aoio.md): records gcc, sqlite3 and grep with two inputs each, in
# an empty folder, and replays the second one. Needs nigh on the PATH, gcc, sqlite3 and grep.
set -euo pipefail
cd "${1:?usage: inputs.sh EMPTY-FOLDER}"
headers=(stdio.h stdlib.h string.h math.h pthread.h signal.h unistd.h sys/socket.h netdb.h locale.h time.h wchar.h regex.h dirent.h)
# SOURCES STEP STRIDE: fourteen files that include six headers each.
sources() {
    mkdir "$1"
    for file in {1..14}; do
        for part in {0..5}; do echo "#include <${headers[(file * $2 + part * $3) % 14]}>"; done >"$1/$file.c"
    done
}
sources gcc-a 1 1
sources gcc-b 3 2
sqlite3 sqlite-a.db "create table sale(id integer primary key, customer int, amount int, note text);
    with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)
    insert into sale select i, i * 7919 % 5000, i % 100, printf('%080d', i) from n; create index by_customer on sale(customer);"
sqlite3 sqlite-b.db "create table word(k text, n int, t text);
    with recursive n(i) as (select 1 union all select i + 1 from n where i < 40000)
    insert into word select hex(i * 7919 % 65536), i % 13, printf('%0120d', i) from n; create index by_k on word(k);"
mkdir grep-a grep-b
for file in {1..300}; do seq -f "line %g of note $file: nothing new" 3000 >"grep-a/$file"; done
for file in {1..200}; do seq -f "note $file has another line %g" 2000 >"grep-b/$file"; done

record() { nigh record -o "$1.parquet" -- "${@:2}" 2>&1 | grep recorded; }
for set in a b; do
    record gcc-$set sh -c "for file in gcc-$set/*.c; do gcc -c -o out.o \$file; done"
    record grep-$set sh -c "for word in one two three; do grep -rc \$word grep-$set >found; done; true"
done
record sqlite-a sqlite3 sqlite-a.db "pragma cache_size = 100; select sum(amount) from sale;
    select sum(length(note)) from sale where customer between 100 and 130; select sum(amount) from sale;
    select count(*) from sale where customer between 4000 and 4100 and length(note) > 5; select sum(amount) from sale;"
record sqlite-b sqlite3 sqlite-b.db "pragma cache_size = 100; select count(*) from word where t like '%99%';
    select sum(length(t)) from word where k between '3100' and '3130'; select max(t) from word;
    select sum(length(t)) from word where k between '3500' and '3530'; select count(*) from word where t like '%77%';"

for program in gcc sqlite grep; do
    for table in "" "--patterns $program-b.parquet --patterns-part 50%" "--patterns $program-a.parquet"; do
        echo "$program-b, aoio ${table:-as it goes}"
        # shellcheck disable=SC2086
        nigh sim $program-b.parquet --policy lru,linux,lirs,aoio,opt --size 25%,50% --ops reads --collapse $table | grep 'iB  \|memory'
    done
done
