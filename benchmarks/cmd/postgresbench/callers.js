// Callers of rate-limiter-flexible, in one process.
//
// Arguments: the database's URL, the schema, the number of callers, that of keys, that of connections.
// They call as each line of the input says (when to begin, in Unix ns, and how long, in ns), and
// print what they saw.
"use strict";
const readline = require("node:readline");
const { Pool } = require("pg");
const { RateLimiterPostgres } = require("rate-limiter-flexible");

const [url, schema] = process.argv.slice(1, 3);
const [callers, keys, connections] = process.argv.slice(3).map(Number);
const name = (i) => "user:" + String(i).padStart(8, "0");
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const now = () => performance.timeOrigin + performance.now(); // Unix ms, with fractions

async function open() {
  const pool = new Pool({ connectionString: url, max: connections });
  const options = { storeClient: pool, schemaName: schema, tableName: "rlflx", points: 100000000, duration: 60 };
  const limiter = await new Promise((done, failed) => {
    const l = new RateLimiterPostgres(options, (err) => (err ? failed(err) : done(l)));
  });
  return { pool, limiter };
}

async function takeEach(limiter) {
  let next = 0;
  const one = async () => {
    while (next < keys) await limiter.consume(name(next++));
  };
  await Promise.all(Array.from({ length: callers }, one));
}

async function callFor(limiter, start, length) {
  const seen = { seconds: 0, granted: 0, failed: 0, errors: "", ns: {} };
  await sleep(start - now());
  const began = performance.now();
  const one = async () => {
    for (let t = performance.now(); t < began + length; ) {
      try {
        await limiter.consume(name(Math.floor(Math.random() * keys)));
        seen.granted++;
      } catch (e) { // a refusal too: there should be none
        seen.failed++;
        seen.errors = String(e.message ?? JSON.stringify(e)).slice(0, 160);
      }
      const end = performance.now();
      const us = Math.round((end - t) * 1e3);
      seen.ns[us * 1e3] = (seen.ns[us * 1e3] ?? 0) + 1;
      t = end;
    }
  };
  await Promise.all(Array.from({ length: callers }, one));
  seen.seconds = (performance.now() - began) / 1e3;
  return seen;
}

async function serve() {
  const { pool, limiter } = await open();
  await takeEach(limiter);
  console.log("ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [start, length] = line.split(" ").map((ns) => Number(ns) / 1e6);
    console.log(JSON.stringify(await callFor(limiter, start, length)));
  }
  await pool.end();
}

serve().catch((e) => {
  console.error(e);
  process.exit(1);
});
