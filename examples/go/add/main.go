// Command add puts an item into a cart: add CART ITEM.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	args, err := json.Marshal(map[string]string{"add": os.Args[2]})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := client.New("http://127.0.0.1:8080").Call(ctx, &progressorv1.CallRequest{
		Namespace: "carts-go", ProcessId: os.Args[1], Args: args,
	})
	if client.Reason(err) == progressorv1.ErrorDetail_REASON_TASK_REJECTED {
		fmt.Println("no:", client.Detail(err).GetRejection().GetMessage())
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", answer.GetResponse())
}
