#!/usr/bin/env bash
# Six programs more (docs/papers/aoio.md): records them in an empty folder, and prints what policies hit in four sizes, and AOIO's lead.
# Needs root (PostgreSQL runs as the user postgres), nigh on the PATH, PostgreSQL, cscope, git,
# python3, tar, sort and the headers in /usr/include.
set -euo pipefail
cd "${1:?usage: programs.sh EMPTY-FOLDER}"
folder=$PWD
chmod 755 .
PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
record() { nigh record -o "$1.parquet" -- "${@:2}" 2>&1 | grep recorded; }

# PostgreSQL with 4 MiB of buffers: joins and scans, then look-ups among scans.
install -d -o postgres pg
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
query() { as psql -h "$folder/pg" -q postgres "$@" >/dev/null; }
as initdb -D pg/data >/dev/null 2>&1
cat >>pg/data/postgresql.conf <<END
shared_buffers = 4MB
work_mem = 1MB
unix_socket_directories = '$folder/pg'
listen_addresses = ''
max_parallel_workers_per_gather = 0
autovacuum = off
END
as pg_ctl -D pg/data -w -l pg/log start >/dev/null
for table in "hundred 100000 7919 100003" "twohundred 200000 104729 200003"; do
    read -r name rows step modulus <<<"$table"
    query -c "create table $name(unique1 int, unique2 int, hundred int, filler text);
        insert into $name select (i::bigint * $step) % $modulus, i, i % 100, repeat('x', 120) from generate_series(1, $rows) i;
        create index on $name(unique1); create index on $name(hundred);"
done
as pgbench -h "$folder/pg" -i -s 5 -q postgres 2>/dev/null
query -c "vacuum analyze" -c "checkpoint"
as pg_ctl -D pg/data -w stop >/dev/null
joins() {
    for _ in 1 2; do
        query -c "select count(*) from hundred a, twohundred b where a.unique1 = b.unique1 and b.hundred < 50" \
            -c "select sum(length(filler)) from twohundred where hundred between 3 and 5" -c "select sum(length(filler)) from hundred"
    done
}
lookups() {
    for seed in 1 2 3 4; do
        query -c "select count(*) from hundred" -c "select sum(abalance) from pgbench_accounts"
        as pgbench -h "$folder/pg" -n -S -t 3000 --random-seed="$seed" postgres >/dev/null 2>&1
    done
}
for work in joins lookups; do
    as nigh record -o "pg/$work.parquet" -- postgres -D "$folder/pg/data" >"pg/$work.log" 2>&1 &
    server=$!
    until query -c "select 1" 2>/dev/null; do sleep 0.2; done
    $work
    kill -INT "$(head -1 pg/data/postmaster.pid)"
    wait "$server" || true
    grep recorded "pg/$work.log"
    mv "pg/$work.parquet" "postgres-$work.parquet"
done

# cscope: an index of 1,500 headers, and ten queries.
mkdir cscope
cp -rL /usr/include cscope/include 2>/dev/null || true
(cd cscope && find include -name '*.h' | sort >all && sed -n 1,1500p all >cscope.files)
record cscope sh -c 'cd cscope; cscope -b -k -c
    for word in printf malloc struct EOF size_t; do cscope -d -k -c -L -0 $word; cscope -d -k -c -L -4 $word; done >found'

# A data job: three tables are scanned line by line, six in blocks, and two are sampled, four times.
cat >job.py <<'END'
import random
random.seed(1)
tables = [f"table{number}.csv" for number in range(6)]
for table in tables:
    with open(table, "w") as out:
        for row in range(40000):
            out.write(f"{row},{random.randrange(1000)},{'z' * 40}\n")
END
cat >read.py <<'END'
import random
random.seed(1)
tables = [f"table{number}.csv" for number in range(6)]
def sample(table):
    with open(table, "rb") as data:
        for _ in range(400):
            data.seek(random.randrange(1500000) // 4096 * 4096)
            data.read(4096)
for _ in range(4):
    for table in tables[:3]:
        with open(table, "rb") as data:
            sum(len(line) for line in data)
    sample(tables[4])
    for table in tables:
        with open(table, "rb", buffering=0) as data:
            while data.read(65536):
                pass
    sample(tables[5])
    sample(tables[5])
END
python3 job.py
record python python3 read.py

# git grep in a repository of 400 headers, and tar and sort of the tables.
mkdir repository
(cd repository && git init -q . && sed -n 1,400p ../cscope/cscope.files | (cd ../cscope && xargs cp --parents -t ../repository) && git add -A &&
    git -c user.name=n -c user.email=n@n commit -qm all)
record git-grep sh -c 'for word in struct static return; do git -C repository grep -c $word >found; done'
record tar-sort sh -c 'for round in 1 2 3; do tar cf - repository table*.csv | cat >/dev/null; done
    sort table1.csv table2.csv | tail -1; sort -t, -k2 table1.csv table2.csv | tail -1'

cells() { nigh sim "$@" --ops reads --collapse --json 2>/dev/null | python3 -c 'import json, sys
for row in json.load(sys.stdin)["results"]: print(row["policy"], row["size_blocks"], "%.2f" % (100 * row["hit_ratio"]))'; }
columns=time=time_ns,tenant=tenant,op=op,volume=volume,offset=offset,length=length,time-unit=ns,offset-unit=bytes,length-unit=bytes
{
    echo "| program | blocks | lru | linux | ubm | pcc | amp | lirs | aoio | opt | pcc, a process is one code | amp, too | aoio, too | aoio, its table | second half | table of the first |"
    echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for program in postgres-joins postgres-lookups cscope python git-grep tar-sort; do
        nigh trace convert --force $program.parquet plain.csv 2>/dev/null
        for share in 12.5% 25% 50% 75%; do
            trace="$program.parquet --size $share"
            # shellcheck disable=SC2086
            {
                cells $trace --policy lru,linux,ubm,pcc,amp,lirs,aoio,opt
                cells plain.csv --size $share --format csv --columns $columns --policy pcc,amp,aoio
                cells $trace --policy aoio --patterns $program.parquet
                cells $trace --policy aoio --warmup 50%
                cells $trace --policy aoio --warmup 50% --patterns $program.parquet --patterns-part 50%
            } | awk -v program=$program '{ blocks = $2; row = row " | " $3 } END { print "| " program " | " blocks row " |" }'
        done
    done
} | tee table.md
python3 - <<'END'
best = {}
for line in open("table.md").readlines()[2:]:
    program, blocks, *ratios = [cell.strip() for cell in line.strip("|\n ").split("|")]
    *five, _, aoio = [float(ratio) for ratio in ratios[:7]]
    best[program] = max(best.get(program, (-100,)), (aoio - five[4], blocks, aoio - sum(five) / 5, 500 * aoio / sum(five) - 100))
for program, (_, blocks, points, relative) in best.items():
    print(f"aoio is farthest ahead of amp on {program} in {blocks} blocks: {points:+.1f} points on the five, {relative:+.0f} %")
points, relative = [sum(lead[at] for lead in best.values()) / len(best) for at in (2, 3)]
print(f"mean: {points:+.1f} points, {relative:+.0f} %")
END
