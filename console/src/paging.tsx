// Lists are paged with tokens, so the number of pages is unknown.
import { change } from "./router";
import { Button } from "./ui";

export function Pager({ after, next, name = "after" }: { after: string; next: string; name?: string }) {
  if (!after && !next) return null;
  return (
    <div className="pager">
      <Button disabled={!after} onClick={() => change({ [name]: undefined })}>
        First page
      </Button>
      <Button disabled={!after} onClick={() => history.back()}>
        Back
      </Button>
      <Button disabled={!next} onClick={() => change({ [name]: next })}>
        Next page
      </Button>
    </div>
  );
}

/** Reads pages until there are enough rows. A page may be short if few rows match the filter. Stops after a number of tries. */
export async function fill<T>(first: string, wanted: number, page: (token: string) => Promise<{ rows: T[]; next: string }>, tries = 8): Promise<{ rows: T[]; next: string }> {
  const rows: T[] = [];
  let token = first;
  for (let n = 0; n < tries; n++) {
    const got = await page(token);
    rows.push(...got.rows);
    token = got.next;
    if (!token || rows.length >= wanted) break;
  }
  return { rows, next: token };
}
