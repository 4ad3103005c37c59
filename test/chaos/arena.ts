/** The product with its five installs, at rest, ready for the first round. */
import { appName, describeApp } from "./app.ts";
import { type Product, type ProductOptions, startProduct } from "./product.ts";

export const installNames = ["north", "east", "south", "west", "centre"] as const;

/** Starts everything; the installs are there before the app has any component. */
export async function openArena(
  data: string,
  options: Partial<Omit<ProductOptions, "data">> = {},
): Promise<Product> {
  const product = await startProduct({ data, installs: installNames, tell: () => {}, ...options });
  try {
    const empty = describeApp({ seed: "", components: 0, round: 0, ledger: product.ledger });
    await product.api.post("/api/apps/sync", { config: empty, sources: {} });
    await product.addInstalls(appName);
    return product;
  } catch (error) {
    await product.stop();
    throw error;
  }
}
