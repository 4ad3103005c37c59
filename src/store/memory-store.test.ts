/** The store in memory keeps the contract. */
import { createMemoryStore } from "./memory-store.ts";
import { testStore } from "./store-conformance.ts";

testStore("memory store", async (use) => {
  const store = createMemoryStore();
  await use(store, store);
});
